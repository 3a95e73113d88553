//! `pillion run`: one command, its connections bundled.

use std::env;
use std::ffi::{CString, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signalfd::SignalFd;
use nix::unistd::{self, Gid, Pid, Uid, initgroups, setgid, setuid};
use pillion_bpf::{
    Attachment, Cgroup, Change, Mode, Namespaces, Policy, Programs, Rule, Scope, Selection,
};
use pillion_cli::command::{Inherited, Signals, cannot_run};
use pillion_cli::exit::one_line;
use pillion_cli::print::say_line;
use pillion_cli::settings::BadInput;

use crate::args::BundlingArgs;
use crate::follow::{Watcher, until_readable};
use crate::process::{Descriptors, is_setuid, refuse_if_setuid, start_cleanup};
use crate::stats::{Stats, summary};

/// How long the command may have to wait for network devices to be attached to: a device takes
/// the kernel tens of milliseconds. The others follow while it runs.
const PATIENCE: Duration = Duration::from_millis(200);

/// Run a command with its TCP connections bundled
///
/// The command runs as the calling user (under sudo: the user who called it), in a
/// cgroup of its own; its children's connections are bundled too. Its terminal, signals
/// and exit status are passed through (docs/process.md). Exit status 126 and 127 mean, as in
/// shells, that the command could not be run or was not found. When it ends, one line on
/// standard error says what was done.
#[derive(clap::Args)]
#[command(override_usage = "pillion run [OPTIONS] -- <CMD>...")]
pub struct Args {
    /// Run the command as this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Leave it to the command: bundle the sockets that it switches on (docs/socket-option.md), and
    /// no others
    #[arg(long)]
    on_request: bool,

    /// Print nothing at the end
    #[arg(long, short)]
    quiet: bool,

    /// Keep the account of what was done in FILE, as JSON: each ten seconds, and at the end
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,

    /// The command, after `--`
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,

    #[command(flatten)]
    bundling: BundlingArgs,
}

/// The bundler at work, and where its account goes.
struct Bundler {
    attachment: Attachment,
    selection: Selection,
    log: Log,
}

/// Where it tells what it does.
struct Log {
    quiet: bool,
    stats: Stats,
}

impl Watcher for Log {
    fn tell(&mut self, change: &Change) {
        if !self.quiet {
            say_line!("pillion: {change}");
        }
    }

    fn keep_up(&mut self, attachment: &Attachment, _: &Selection) {
        self.stats.keep_up(attachment);
    }
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        let user = User::for_command(self.user.as_deref())?;
        self.bundling.refuse_lent()?;
        let options = self.bundling.options()?;
        let descriptors = Descriptors::raise();
        let mut selection = self.bundling.selection(&Namespaces::default())?;
        let mut log = Log {
            quiet: self.quiet,
            stats: Stats::to(self.stats.clone())?,
        };
        let rule = Rule {
            companions: self.bundling.how.companions,
            mode: if self.on_request {
                Mode::Allow(options)
            } else {
                Mode::Bundle(options)
            },
            ..Rule::default()
        };
        // Held back first: what ends pillion early is to leave nothing.
        let mut signals = Signals::hold().context("hold signals back")?;
        let programs = Programs::load(&Policy {
            rules: vec![rule],
            scope: Scope::Anywhere,
            max_connections: self.bundling.max_connections,
            governing: true,
            ..Policy::default()
        })?
        .by(self.bundling.hook());

        let cgroup = Cgroup::create()?;
        let remains = programs.remains();
        let clean_up = || {
            remains.clear(&Namespaces::default(), Some(cgroup.as_fd()));
            // A failure cannot be reported any more; the next pillion tries again.
            let _ = cgroup.remove();
        };
        let outcome = start_cleanup(clean_up)
            .context("start the cleanup helper")
            .and_then(|_helper| {
                let patience = Some(PATIENCE);
                let (attachment, changes) =
                    Attachment::begin(programs, cgroup.as_fd(), &mut selection, patience)?;
                changes.iter().for_each(|change| log.tell(change));
                let bundler = Bundler {
                    attachment,
                    selection,
                    log,
                };
                self.run_in(&cgroup, bundler, user.as_ref(), &mut signals, descriptors)
            });
        if let Err(error) = cgroup.remove() {
            say_line!("pillion: {error}");
        }
        outcome
    }

    fn run_in(
        &self,
        cgroup: &Cgroup,
        mut bundler: Bundler,
        user: Option<&User>,
        signals: &mut Signals,
        descriptors: Descriptors,
    ) -> Result<ExitCode> {
        if let Some(code) = signals.have_ended().context("read a signal")? {
            return Ok(code);
        }
        let command = match self.start(cgroup, user, signals.inherited(), descriptors)? {
            Ok(command) => command,
            Err(error) => return Ok(cannot_run("pillion", &self.command[0], &error)),
        };
        let follow = |signals: &SignalFd| {
            let Bundler {
                attachment,
                selection,
                log,
            } = &mut bundler;
            until_readable(signals, attachment, selection, log)
        };
        let code = signals
            .pass_to(command, follow)
            .context("wait for the command")?;
        // From here on the exit status is the command's, whatever else fails.
        bundler.attachment.finish();
        if let Err(error) = self.account(&bundler) {
            say_line!("pillion: {}", one_line(&error));
        }
        Ok(code)
    }

    fn account(&self, bundler: &Bundler) -> Result<()> {
        let totals = bundler.attachment.totals()?;
        if !self.quiet {
            say_line!("pillion: {}", summary(&totals));
        }
        bundler.log.stats.write(&totals)
    }

    /// Starts the command. The inner error is the command's own: it does not exist, or may not be
    /// run.
    fn start(
        &self,
        cgroup: &Cgroup,
        user: Option<&User>,
        inherited: &Inherited,
        descriptors: Descriptors,
    ) -> Result<io::Result<Pid>> {
        let mut door = cgroup.door()?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        if let Some(user) = user {
            command.envs(user.environment());
        }
        let user = user.cloned();
        let inherited = inherited.clone();
        // SAFETY: between fork and exec only system calls are made, and no memory is
        // shared with the parent that it could be changing.
        unsafe {
            command.pre_exec(move || {
                door.write_all(b"0")?;
                descriptors.lower()?;
                if let Some(user) = &user {
                    user.become_it()?;
                }
                inherited.restore().map_err(io::Error::from)
            });
        }
        Ok(command
            .spawn()
            .map(|child| Pid::from_raw(child.id().cast_signed())))
    }
}

// As whom the command runs: pillion needs privilege, the command does not.

/// A user other than the one pillion runs as.
#[derive(Clone)]
pub struct User {
    name: CString,
    home: String,
    uid: Uid,
    gid: Gid,
}

impl User {
    /// The user named, or the caller of a setuid pillion, or of sudo; `None` if this process runs
    /// as that user anyway.
    fn for_command(name: Option<&str>) -> Result<Option<Self>> {
        if name.is_some() {
            refuse_if_setuid("--user")?;
        }
        let found = match (name, calling_uid()) {
            (Some(name), _) => unistd::User::from_name(name)
                .with_context(|| format!("look up the user {name}"))?
                .ok_or_else(|| BadInput(format!("--user: there is no user `{name}`")))?,
            (None, Some(uid)) => unistd::User::from_uid(uid)
                .with_context(|| format!("look up the user {uid}"))?
                .ok_or_else(|| {
                    BadInput(format!("no user has the id {uid}; name one with --user"))
                })?,
            (None, None) => return Ok(None),
        };
        if found.uid == Uid::effective() && found.uid == Uid::current() {
            return Ok(None);
        }
        Ok(Some(Self {
            name: CString::new(found.name)?,
            home: found.dir.to_string_lossy().into_owned(),
            uid: found.uid,
            gid: found.gid,
        }))
    }

    /// Variables of the environment that tell the command which user it runs as.
    pub fn environment(&self) -> [(&'static str, String); 3] {
        let name = self.name.to_string_lossy().into_owned();
        [
            ("USER", name.clone()),
            ("LOGNAME", name),
            ("HOME", self.home.clone()),
        ]
    }

    /// Makes this process the user's, and so gives up its privilege for good.
    fn become_it(&self) -> io::Result<()> {
        initgroups(&self.name, self.gid)?;
        setgid(self.gid)?;
        setuid(self.uid)?;
        Ok(())
    }
}

fn calling_uid() -> Option<Uid> {
    if is_setuid() {
        return Some(Uid::current());
    }
    if !Uid::effective().is_root() {
        return None;
    }
    env::var("SUDO_UID").ok()?.parse().ok().map(Uid::from_raw)
}
