//! The machine: an emulator, with the kernel's console in a file and its reports on a pipe.

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

use crate::report::Report;

/// What executes the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processor {
    /// The host's processor.
    Kvm,
    /// Software.
    Emulated,
}

/// A machine that is to be started.
#[derive(Debug, Clone)]
pub struct Machine {
    pub processor: Processor,
    /// Features that an emulated one must not have.
    pub without: Vec<String>,
    pub kernel: PathBuf,
    pub image: PathBuf,
    /// Where the console is kept.
    pub console: PathBuf,
    /// The machine is stopped after so much time.
    pub limit: Duration,
}

/// How a machine came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The machine was switched off when the work was done.
    Done,
    /// The machine ended by itself before that.
    Early,
    /// The machine's time was over.
    Late,
}

const EMULATOR: &str = "qemu-system-x86_64";
const CORES: &str = "2";
const MEMORY: &str = "2048";

impl Processor {
    fn arguments(self, without: &[String]) -> Vec<String> {
        let without = without.iter().map(|feature| format!(",-{feature}"));
        let (engine, model) = match self {
            Self::Kvm => ("kvm", "host".to_owned()),
            // One thread for all cores: with one each, a core may run into the breakpoint by which
            // another changes the kernel's code, after that is gone again, and the kernel dies.
            // Fast copies by a string instruction are slow where they are emulated.
            Self::Emulated => (
                "tcg,thread=single",
                format!("max,-erms,-fsrm{}", without.collect::<String>()),
            ),
        };
        ["-accel", engine, "-cpu", &model]
            .map(str::to_owned)
            .to_vec()
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Emulated => "emulated",
        }
    }
}

impl Machine {
    /// Runs the machine to its end, and hands over each report as it comes.
    pub fn run(&self, mut take: impl FnMut(Report)) -> Result<End> {
        let mut child = self.command()?.spawn().with_context(|| {
            format!("{EMULATOR}: `scripts/setup kernels` installs the emulator")
        })?;
        let reports = reports(child.stdout.take().context("a pipe")?);
        let deadline = Instant::now() + self.limit;
        let mut end = End::Early;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match reports.recv_timeout(left) {
                Ok(Report::End) => end = End::Done,
                Ok(report) => take(report),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    end = End::Late;
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
        let mut command = Command::new(EMULATOR);
        command
            .args(self.processor.arguments(&self.without))
            .args(["-smp", CORES, "-m", MEMORY])
            .args([
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-no-reboot",
            ])
            .args(["-serial", &format!("file:{}", self.console.display())])
            .args(["-serial", "stdio"])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.image)
            // Warnings are shown, and a panic ends the machine.
            .args(["-append", "console=ttyS0 loglevel=5 panic=-1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::from(File::create(self.said())?));
        // SAFETY: between fork and exec only a system call is made.
        unsafe {
            command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into));
        }
        Ok(command)
    }

    /// Where the emulator's own messages are kept.
    pub fn said(&self) -> PathBuf {
        self.console.with_extension("emulator")
    }
}

fn reports(output: ChildStdout) -> Receiver<Report> {
    let (sender, reports) = channel();
    thread::spawn(move || {
        // Anything else on the port is the firmware's.
        let lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
        for report in lines.filter_map(|line| serde_json::from_slice(&line).ok()) {
            if sender.send(report).is_err() {
                return;
            }
        }
    });
    reports
}

/// One that was switched off has ended already.
fn stop(child: &mut Child) -> Result<()> {
    child.kill().context("stop the machine")?;
    child.wait().context("wait for the machine")?;
    Ok(())
}

/// KVM where it really works, which only a try can tell.
pub fn choose_processor(kernel: &Path, image: &Path, folder: &Path) -> Processor {
    let machine = Machine {
        processor: Processor::Kvm,
        without: Vec::new(),
        kernel: kernel.to_owned(),
        image: image.to_owned(),
        console: folder.join("probe.console"),
        limit: Duration::from_secs(20),
    };
    let has_kvm = Path::new("/dev/kvm").exists();
    match has_kvm.then(|| machine.run(|_| {})) {
        Some(Ok(End::Done)) => Processor::Kvm,
        _ => Processor::Emulated,
    }
}
