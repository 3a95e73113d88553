use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{io, os::unix::process::CommandExt};

use anyhow::{Context, Result};
use nix::unistd::Pid;
use pillion_cli::command::{Signals, cannot_run};
use pillion_cli::print::say_line;
use pillion_cli::stop;
use pillion_lab::PROGRAM;
use pillion_lab::queue::{Reasons, Recording, Target};

use super::Args;
use super::outputs::Outputs;

impl Args {
    pub fn watch(&self, device: &str) -> Result<ExitCode> {
        let target = self.netns.open()?.enter(|| Target::find(device))??;
        let reasons = Arc::new(Reasons::of_this_kernel());
        let outputs = Arc::new(Mutex::new(Outputs::open(self)?));
        let shared = (Arc::clone(&outputs), Arc::clone(&reasons));
        // Signals are to end the watching in good order from its first moment on.
        let waiting = match self.command.is_empty() {
            true => Waiting::For(self.duration, stop::on_signal()?),
            false => Waiting::While(Signals::hold().context("hold signals back")?),
        };
        let recording = Recording::start(&target, move |event| {
            let (outputs, reasons) = &shared;
            let mut outputs = outputs.lock().unwrap_or_else(PoisonError::into_inner);
            outputs.take(&event, reasons)
        })?;
        let code = match waiting {
            Waiting::For(duration, stop) => {
                say_line!("pillion-lab: watching the queue of {device}; Ctrl-C ends it");
                wait(duration, &stop, &recording);
                ExitCode::SUCCESS
            }
            Waiting::While(mut signals) => self.run(&mut signals)?,
        };
        recording.stop()?;
        let outputs = Arc::into_inner(outputs).context("the recording still runs")?;
        let outputs = outputs.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.print(&outputs.finish(&reasons)?)?;
        Ok(code)
    }

    fn run(&self, signals: &mut Signals) -> Result<ExitCode> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Ok(ExitCode::SUCCESS);
        };
        let mut command = Command::new(program);
        let inherited = signals.inherited().clone();
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || inherited.restore().map_err(io::Error::from));
        }
        match command.args(arguments).spawn() {
            Ok(child) => {
                let child = Pid::from_raw(child.id().cast_signed());
                let ended = signals.pass_to(child, |_| Ok(()));
                ended.context("wait for the command")
            }
            Err(error) => Ok(cannot_run(PROGRAM, program, &error)),
        }
    }
}

/// What ends the watching of the queue.
enum Waiting {
    For(Option<Duration>, Arc<AtomicBool>),
    While(Signals),
}

fn wait(duration: Option<Duration>, stop: &AtomicBool, recording: &Recording) {
    let begun = Instant::now();
    let left = || match duration {
        Some(duration) => duration.saturating_sub(begun.elapsed()),
        None => Duration::MAX,
    };
    while !stop.load(Ordering::Relaxed) && !recording.has_failed() && !left().is_zero() {
        thread::sleep(left().min(Duration::from_millis(50)));
    }
}
