//! Machine emulator, with the kernel's console in a file and its reports on a pipe.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::prctl;
use nix::sys::signal::Signal;

use crate::architecture::Architecture;
use crate::report::Report;

/// Processor that executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// The host's processor.
    Kvm,
    /// Software emulation.
    Emulated,
}

/// Configuration of a machine.
#[derive(Debug, Clone)]
pub struct Machine {
    pub architecture: Architecture,
    pub processor: Processor,
    /// CPU features to disable in an emulated processor.
    pub disabled_features: Vec<String>,
    pub kernel: PathBuf,
    pub image: PathBuf,
    /// File for the console output.
    pub console: PathBuf,
    /// Maximum run time; the machine is stopped afterwards.
    pub limit: Duration,
}

/// Reason for the end of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The guest finished its work and powered off.
    Finished,
    /// The machine exited before that.
    ExitedEarly,
    /// The time limit was reached.
    TimedOut,
}

const CORES: &str = "2";
const MEMORY: &str = "2048";

impl Processor {
    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Emulated => "emulated",
        }
    }
}

impl Machine {
    /// Runs the machine to its end, and passes on each report as it arrives.
    pub fn run(&self, mut handle_report: impl FnMut(Report)) -> Result<End> {
        let emulator = self.architecture.emulator();
        let mut child = self.command()?.spawn().with_context(|| {
            format!("{emulator}: `scripts/setup kernels` installs the emulator")
        })?;
        let reports = reports(child.stdout.take().context("a pipe")?);
        let deadline = Instant::now() + self.limit;
        let mut end = End::ExitedEarly;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match reports.recv_timeout(left) {
                Ok(Report::End) => end = End::Finished,
                Ok(report) => handle_report(report),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    end = End::TimedOut;
                    break;
                }
            }
        }
        stop(&mut child)?;
        Ok(end)
    }

    fn command(&self) -> Result<Command> {
        let console =
            File::create(&self.console).with_context(|| format!("{}", self.console.display()))?;
        drop(console);
        let mut command = Command::new(self.architecture.emulator());
        let processor = match self.processor {
            Processor::Kvm => ["-accel", "kvm", "-cpu", "host"].map(str::to_owned),
            Processor::Emulated => self
                .architecture
                .emulated_processor(&self.disabled_features),
        };
        let console = self.architecture.console();
        command
            .args(processor)
            .args(["-smp", CORES, "-m", MEMORY])
            .args([
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-no-reboot",
            ])
            .args(["-serial", &format!("file:{}", self.console.display())])
            .args(self.architecture.machine())
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.image)
            // The console shows warnings, and a panic ends the machine.
            .arg("-append")
            .arg(format!("console={console} loglevel=5 panic=-1"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(File::create(self.emulator_log())?));
        // SAFETY: between fork and exec only a system call is made.
        unsafe {
            command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into));
        }
        Ok(command)
    }

    /// Returns the file with the emulator's own messages.
    pub fn emulator_log(&self) -> PathBuf {
        self.console.with_extension("emulator")
    }
}

fn reports(output: ChildStdout) -> Receiver<Report> {
    let (sender, reports) = channel();
    thread::spawn(move || {
        // Other lines on the port come from the firmware.
        let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
        for report in lines.filter_map(|line| serde_json::from_slice(&line).ok()) {
            if sender.send(report).is_err() {
                return;
            }
        }
    });
    reports
}

/// Killing a machine that has exited already has no effect.
fn stop(child: &mut Child) -> Result<()> {
    child.kill().context("stop the machine")?;
    child.wait().context("wait for the machine")?;
    Ok(())
}

/// Selects KVM if a trial boot of a kernel for this host succeeds with it.
pub fn choose_processor(
    architecture: Architecture,
    kernel: &Path,
    image: &Path,
    folder: &Path,
) -> Processor {
    let machine = Machine {
        architecture,
        processor: Processor::Kvm,
        disabled_features: Vec::new(),
        kernel: kernel.to_owned(),
        image: image.to_owned(),
        console: folder.join("probe.console"),
        limit: Duration::from_secs(20),
    };
    let has_kvm = Path::new("/dev/kvm").exists();
    match has_kvm.then(|| machine.run(|_| {})) {
        Some(Ok(End::Finished)) => Processor::Kvm,
        _ => Processor::Emulated,
    }
}
