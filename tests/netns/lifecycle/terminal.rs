//! Terminals and keys of their users.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::unistd::setsid;

use super::{Running, run};
use crate::common::*;

/// User's side of a terminal. Dropping it closes the terminal.
pub struct Terminal {
    user: File,
    /// The session leader.
    pub leader: Running,
    shown: String,
}

impl Terminal {
    pub fn begin(command: &mut Command) -> Self {
        let flags = OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let user = posix_openpt(flags).expect("a terminal");
        grantpt(&user).expect("a terminal");
        unlockpt(&user).expect("a terminal");
        let name = ptsname_r(&user).expect("a name");
        let other = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(name)
            .expect("the other side");
        let side = || other.try_clone().expect("a descriptor");
        command.stdin(side()).stdout(side()).stderr(side());
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(|| {
                setsid()?;
                match libc::ioctl(0, libc::TIOCSCTTY, 0) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        let leader = Running::begin(command);
        // The command still holds copies of the other side.
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let user = user.as_fd().try_clone_to_owned().expect("a descriptor");
        Self {
            user: user.into(),
            leader,
            shown: String::new(),
        }
    }

    pub fn types(&mut self, keys: &str) {
        self.user.write_all(keys.as_bytes()).expect("a terminal");
    }

    /// Waits until the terminal shows a text after the previously awaited one.
    pub fn shows(&mut self, text: &str) {
        let Self { user, shown, .. } = self;
        within(
            Duration::from_secs(60),
            &format!("the terminal shows {text}"),
            || {
                let mut bytes = [0; 4096];
                match user.read(&mut bytes) {
                    Ok(count) => shown.push_str(&String::from_utf8_lossy(&bytes[..count])),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => panic!("{error}: {shown}"),
                }
                shown.contains(text)
            },
        );
        let behind = shown.find(text).expect("shown") + text.len();
        self.shown.drain(..behind);
    }

    /// Closes the terminal and returns the leader.
    pub fn close(self) -> Running {
        self.leader
    }
}

#[test]
fn closing_the_terminal_of_which_pillion_leads_the_session_ends_the_command() {
    needs_root!();
    let mut terminal = Terminal::begin(&mut run(&["sh", "-c", "echo begun; sleep 300"]));
    terminal.shows("begun");
    let mut pillion = terminal.close();
    assert_eq!(pillion.end().code(), Some(128 + 1));
}

#[test]
fn ctrl_c_reaches_a_command_with_a_process_group_of_its_own() {
    needs_root!();
    let words = ["timeout", "100", "sh", "-c", "echo begun; sleep 300"];
    let mut terminal = Terminal::begin(&mut run(&words));
    terminal.shows("begun");
    terminal.types("\x03");
    assert_eq!(terminal.leader.end().code(), Some(128 + 2));
}

#[test]
fn ctrl_c_reaches_the_command_once() {
    needs_root!();
    let script = "trap '' INT; sleep 300 & trap 'echo heard' INT; \
                  trap 'kill $!; exit 7' TERM; echo begun; while :; do wait; done";
    let mut terminal = Terminal::begin(&mut run(&["bash", "-c", script]));
    terminal.shows("begun");
    for _ in 0..10 {
        terminal.types("\x03");
        terminal.shows("heard");
        // A duplicate would have arrived by now.
        thread::sleep(Duration::from_millis(200));
    }
    terminal.leader.signal(nix::sys::signal::Signal::SIGTERM);
    terminal.shows("0 connections");
    assert!(!terminal.shown.contains("heard"));
}
