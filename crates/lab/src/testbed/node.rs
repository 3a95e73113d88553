use std::fs;
use std::io;
use std::iter;

use pillion_settings::experiment::Mechanism;
use serde::de::DeserializeOwned;

use super::Log;
use crate::{Error, Namespace, kernel_release};

/// A machine of a testbed: a network namespace, and what it is called.
#[derive(Debug, Clone)]
pub struct Node {
    /// The machine's name, in messages and files.
    pub name: String,
    /// The machine's network namespace.
    pub namespace: Namespace,
    log: Log,
}

impl Node {
    /// Makes an empty machine, without IPv6: nothing but what is studied shall pass its devices.
    pub(super) fn create(name: &str, log: &Log) -> Result<Self, Error> {
        let namespace = Namespace::create().map_err(|source| Error::Namespace {
            name: name.to_owned(),
            source,
        })?;
        let node = Self {
            name: name.to_owned(),
            namespace,
            log: log.clone(),
        };
        node.enter(speak_ipv4_alone)?.map_err(|source| {
            let action = "switch IPv6 off";
            Error::System { action, source }
        })?;
        Ok(node)
    }

    /// Runs `work` inside the machine and waits for its result.
    pub(crate) fn enter<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        self.namespace
            .enter(work)
            .map_err(|source| Error::Namespace {
                name: self.name.clone(),
                source,
            })
    }

    /// Runs a command of words without spaces inside the machine, and returns what it prints.
    ///
    /// # Errors
    /// [`Error::Command`], with what it said.
    pub fn run(&self, command: &str) -> Result<String, Error> {
        self.run_with(command, "")
    }

    /// Runs a command inside the machine that prints JSON.
    ///
    /// # Errors
    /// As [`Node::run`], and with what is wrong about the JSON.
    pub(crate) fn run_json<T: DeserializeOwned>(&self, command: &str) -> Result<T, Error> {
        let text = self.run(command)?;
        serde_json::from_str(&text).map_err(|error| Error::Command {
            command: command.to_owned(),
            host: self.name.clone(),
            reason: format!("no JSON: {error}"),
        })
    }

    /// Sets the machine's devices up by commands of `ip`, all at once, the loopback device first.
    pub(super) fn set_up(&self, lines: impl IntoIterator<Item = String>) -> Result<(), Error> {
        let loopback = "link set lo up".to_owned();
        let lines: Vec<_> = iter::once(loopback).chain(lines).collect();
        self.run_batch("ip", &lines)
    }

    /// Runs many commands of `ip` or of `tc` inside the machine at once.
    pub(super) fn run_batch(&self, program: &str, lines: &[String]) -> Result<(), Error> {
        for line in lines {
            self.log.say(&format!("{}: {program} {line}", self.name));
        }
        let input = lines.join("\n") + "\n";
        self.run_with(&format!("{program} -batch -"), &input)
            .map(drop)
    }

    fn run_with(&self, command: &str, input: &str) -> Result<String, Error> {
        self.log.say(&format!("{}: {command}", self.name));
        let failed = |reason: String| Error::Command {
            command: command.to_owned(),
            host: self.name.clone(),
            reason,
        };
        let mut words = command.split_whitespace();
        let program = words.next().unwrap_or_default();
        let arguments: Vec<_> = words.collect();
        let missing = |error| failed(format!("{error}; the live engine takes iproute2"));
        let output = self.namespace.run(program, &arguments, input);
        let output = output.map_err(missing)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(failed(said.trim().replace('\n', "; ")))
    }

    /// Sets a parameter of the kernel in the machine's network namespace.
    ///
    /// # Errors
    /// [`Error::Lacks`] if the kernel has none of that name, [`Error::Sysctl`].
    pub(super) fn set(&self, name: &str, value: &str) -> Result<(), Error> {
        self.log
            .say(&format!("{}: sysctl {name}={value}", self.name));
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let written = value.to_owned();
        let result = self.enter(move || fs::write(path, written))?;
        let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let mechanism = Mechanism::all().find(|mechanism| mechanism.sysctl() == name);
        result.map_err(|source| match mechanism {
            Some(mechanism) if absent(&source) => Error::Lacks {
                what: format!("the mechanism {} ({name})", mechanism.name()),
                kernel: kernel_release(),
            },
            _ => Error::Sysctl {
                host: self.name.clone(),
                setting: format!("{name}={value}"),
                source: match absent(&source) {
                    true => io::Error::other("no parameter of a network namespace in this kernel"),
                    false => source,
                },
            },
        })
    }
}

/// Keeps the kernel from asking for routers and naming its groups in this thread's network namespace,
/// so that a path carries what is studied and nothing else.
///
/// # Errors
/// What the kernel says, unless that it has no IPv6.
pub fn speak_ipv4_alone() -> io::Result<()> {
    match fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1") {
        // A kernel without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
