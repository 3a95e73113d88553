use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::teller::open;
use crate::engine::job::{Ending, Job};
use crate::engine::lines::Line;

/// Runs the job's program until it ends, and then ends whatever it left running.
pub fn run(job: &Job) -> Result<Ending, String> {
    let mut child = Command::new(&job.program)
        .args(&job.arguments)
        .env_clear()
        .envs([("PATH", "/bin"), ("HOME", "/root"), ("LANG", "C.UTF-8")])
        .envs(&job.environment)
        .current_dir("/tmp")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{}: {error}", job.program))?;
    // Lines directly would be terminals to the program, and change what it writes.
    let copies = [
        pass_on(child.stdout.take(), Line::Output)?,
        pass_on(child.stderr.take(), Line::Errors)?,
    ];
    let over = Arc::new(AtomicBool::new(false));
    if let Some(limit) = job.time_limit {
        stop_after(limit, Arc::clone(&over));
    }
    let status = wait(&child)?;
    end_all();
    for copy in copies {
        let _ = copy.join();
    }
    Ok(if over.load(Ordering::Relaxed) {
        Ending::TimeLimit
    } else {
        status
    })
}

fn pass_on(from: Option<impl Read + Send + 'static>, line: Line) -> Result<JoinHandle<()>, String> {
    let mut to = open(line)?;
    Ok(thread::spawn(move || {
        if let Some(mut from) = from {
            let _ = io::copy(&mut from, &mut to);
        }
    }))
}

fn stop_after(limit: Duration, over: Arc<AtomicBool>) {
    thread::spawn(move || {
        thread::sleep(limit);
        over.store(true, Ordering::Relaxed);
        end_all();
    });
}

/// Ends every process but this one.
fn end_all() {
    let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
}

/// Waits for the program, and for orphans meanwhile.
fn wait(child: &Child) -> Result<Ending, String> {
    let child = Pid::from_raw(child.id().cast_signed());
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(process, status)) if process == child => {
                return Ok(Ending::Exited(status));
            }
            Ok(WaitStatus::Signaled(process, signal, _)) if process == child => {
                return Ok(Ending::Killed(signal as i32));
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(format!("wait for the program: {errno}")),
        }
    }
}
