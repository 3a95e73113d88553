
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::ends::{self, Task};
use super::field::Field;
use super::ground::Group;
use super::plan::Side;
use super::talk::PATIENCE;

/// Server or long-lived client process of the soak.
pub struct Member {
    name: &'static str,
    group: Group,
    process: Child,
    lines: Receiver<String>,
    listener: JoinHandle<()>,
}

impl Member {
    pub fn server(field: &Field) -> Result<Self, String> {
        let server = Self::begin(field, "server", Side::Server, None);
        let server = server.map_err(|error| format!("server: {error}"))?;
        let mut lines = server.lines.iter();
        match lines.find(|line| line == "soak: listening") {
            Some(_) => Ok(server),
            None => Err("server: does not listen".to_owned()),
        }
    }

    pub fn client(field: &Field, name: &'static str, task: Task) -> Result<Self, String> {
        let client = Self::begin(field, name, Side::Client, Some(task));
        client.map_err(|error| format!("client {name}: {error}"))
    }

    fn begin(
        field: &Field,
        name: &'static str,
        side: Side,
        task: Option<Task>,
    ) -> io::Result<Self> {
        let group = field.ground.group(name)?;
        let (host, end) = match side {
            Side::Client => (&field.ground.pair.sender.namespace, "a_client"),
            Side::Server => (&field.ground.pair.receiver.namespace, "a_server"),
        };
        let mut command = field.ground.program(host, &group, &ends::this(end));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(task) = task {
            ends::give(&mut command, task);
        }
        let mut process = command.spawn()?;
        let (say, lines) = channel();
        let stdout = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Self {
            name,
            group,
            process,
            lines,
            listener: field.listen(stdout, say),
        })
    }

    pub fn check(&mut self) -> Result<(), String> {
        self.lines.try_iter().for_each(drop);
        match self.process.try_wait() {
            Ok(None) => Ok(()),
            ended => Err(format!("{} exited unexpectedly: {ended:?}", self.name)),
        }
    }

    /// Stops the process with SIGTERM and removes its cgroup.
    pub fn end(mut self) -> Result<(), String> {
        let name = self.name;
        let failed = |what: String| format!("{name}: {what}");
        let pid = Pid::from_raw(self.process.id().cast_signed());
        kill(pid, Signal::SIGTERM).map_err(|errno| failed(errno.to_string()))?;
        let begun = Instant::now();
        let status = loop {
            let status = self.process.try_wait();
            match status.map_err(|error| failed(error.to_string()))? {
                Some(status) => break status,
                None if begun.elapsed() > 2 * PATIENCE => {
                    return Err(failed("does not exit".to_owned()));
                }
                None => thread::sleep(Duration::from_millis(20)),
            }
        };
        let _ = self.listener.join();
        if !status.success() {
            return Err(failed(status.to_string()));
        }
        self.group.remove()
    }
}
