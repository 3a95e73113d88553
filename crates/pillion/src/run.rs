//! `pillion run`: bundles the connections of one command.

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
    AttachTargets, Attachment, Cgroup, Change, Mode, Namespaces, Observing, Policy, Programs, Rule,
    Scope,
};
use pillion_cli::command::{InheritedSignals, Signals, report_spawn_error};
use pillion_cli::exit::one_line;
use pillion_cli::log::{self as logger, LogLevel};
use pillion_cli::settings::BadInput;

use crate::args::{BundlingArgs, HoldbackArgs, cleanup_capabilities};
use crate::event_loop::{EventHandler, Wake, log_change, run_until_signal};
use crate::process::{
    CleanupHelper, Descriptors, FOR_FILES, HELPER_KILLED, is_setuid, refuse_if_setuid,
    spawn_cleanup_helper,
};
use crate::rules::Rules;
use crate::stats::{Stats, log_totals};

/// Maximum delay of the command while devices are attached, at tens of milliseconds each. The others
/// follow while it runs.
const ATTACH_TIMEOUT: Duration = Duration::from_millis(200);

/// Run a command with its TCP connections bundled
///
/// The command runs as the calling user (under sudo: the user who called it) in a cgroup of its own.
/// Connections of its children are bundled too. Its terminal, signals and exit status are passed
/// through (docs/operate/service.md). As in shells, exit status 126 means that the command could not be
/// run, and 127 that it was not found. At the end, one line on standard error has the totals.
#[derive(clap::Args)]
#[command(override_usage = "pillion run [OPTIONS] -- <CMD>...")]
pub struct Args {
    /// Run the command as this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,

    /// Bundle only sockets for which the command requests it (docs/guides/socket-api.md)
    #[arg(long)]
    on_request: bool,

    /// Print nothing at the end
    #[arg(long, short)]
    quiet: bool,

    /// Write the totals to FILE as JSON: every ten seconds and at the end
    #[arg(long, value_name = "FILE")]
    stats: Option<PathBuf>,

    /// Lowest severity to log
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t)]
    log_level: LogLevel,

    /// The command, after `--`
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,

    #[command(flatten)]
    holdback: HoldbackArgs,

    #[command(flatten)]
    bundling: BundlingArgs,
}

/// The attached programs, and their output.
struct Bundler {
    attachment: Attachment,
    targets: AttachTargets,
    output: Output,
    /// `None` once it was killed: then nothing is bundled any more.
    helper: Option<CleanupHelper>,
}

impl Bundler {
    /// Follows devices and connections until `signals` is readable. Without the cleanup helper it
    /// detaches the programs, and the command continues.
    fn follow(&mut self, signals: &SignalFd) -> nix::Result<()> {
        let Self {
            attachment,
            targets,
            output,
            helper,
        } = self;
        if let Some(running) = helper
            && run_until_signal(signals, running, attachment, targets, output)?
                == Wake::HelperExited
        {
            log::error!("{HELPER_KILLED} the command continues without bundling; run it again");
            attachment.finish();
            *helper = None;
        }
        Ok(())
    }
}

/// Log and file of totals.
struct Output {
    quiet: bool,
    stats: Stats,
    rules: Rules,
}

impl EventHandler for Output {
    fn on_change(&mut self, change: &Change) {
        if !self.quiet {
            log_change(change);
        }
    }

    fn on_tick(&mut self, attachment: &mut Attachment, targets: &AttachTargets) {
        // The rules log their failures themselves.
        let _ = self.rules.update(attachment, targets);
        self.stats.write_if_due(attachment);
    }
}

impl Args {
    pub fn execute(self) -> Result<ExitCode> {
        logger::start("pillion", self.log_level);
        let user = User::for_command(self.user.as_deref())?;
        self.bundling.refuse_in_setuid_mode()?;
        let options = self.bundling.options()?;
        let descriptors = Descriptors::raise();
        let mut targets = self.bundling.targets(&Namespaces::default())?;
        let stats = Stats::new(self.stats.clone())?;
        let rule = Rule {
            holdback: self.holdback.holdback,
            tcp_options: self.bundling.how.tcp_options,
            mode: if self.on_request {
                Mode::OnRequest(options)
            } else {
                Mode::Bundle(options)
            },
            ..Rule::default()
        };
        let has_holdback = !rule.holdback.is_none();
        let (max_connections, memory_warning) = self.bundling.max_connections(has_holdback)?;
        if let Some(warning) = memory_warning.filter(|_| !self.quiet) {
            log::warn!("{warning}");
        }
        // First, so that nothing remains after an early signal.
        let mut signals = Signals::block().context("block signals")?;
        let policy = Policy {
            rules: vec![rule],
            scope: Scope::Anywhere,
            max_connections,
            governing: true,
            redundancy_caps: self.bundling.caps(),
            observing: has_holdback.then(|| Observing::by_holdback(rand::random())),
            ..Policy::default()
        };
        let programs = Programs::load(&policy)?.with_hook(self.bundling.hook());
        let mut output = Output {
            quiet: self.quiet,
            stats,
            rules: Rules::new(policy)?,
        };

        let cgroup = Cgroup::create()?;
        let cleanup = programs.cleanup();
        let clean_up = || {
            cleanup.run(&Namespaces::default(), Some(cgroup.as_fd()));
            // A failure cannot be reported here; the next pillion tries again.
            let _ = cgroup.remove();
        };
        let mut capabilities = cleanup_capabilities(&cleanup, &Namespaces::default());
        // The folder above the cgroup may belong to another user.
        capabilities.extend(FOR_FILES);
        let outcome = spawn_cleanup_helper(&capabilities, clean_up)
            .context("start the cleanup helper")
            .and_then(|helper| {
                let timeout = Some(ATTACH_TIMEOUT);
                let (attachment, changes) =
                    Attachment::start(programs, cgroup.as_fd(), &mut targets, timeout)?;
                changes.iter().for_each(|change| output.on_change(change));
                if !self.quiet {
                    let warnings = output.rules.copy_delay_warnings(&attachment);
                    warnings.iter().for_each(|it| log::warn!("{it}"));
                }
                let bundler = Bundler {
                    attachment,
                    targets,
                    output,
                    helper: Some(helper),
                };
                self.run_in(&cgroup, bundler, user.as_ref(), &mut signals, descriptors)
            });
        if let Err(error) = cgroup.remove() {
            log::warn!("{error}");
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
        if let Some(code) = signals.termination().context("read a signal")? {
            return Ok(code);
        }
        let command = match self.start(cgroup, user, signals.inherited(), descriptors)? {
            Ok(command) => command,
            Err(error) => return Ok(report_spawn_error(&self.command[0], &error)),
        };
        let code = signals
            .forward_to(command, |signals| bundler.follow(signals))
            .context("wait for the command")?;
        // From here on the exit status is the command's, whatever else fails.
        bundler.attachment.finish();
        if let Err(error) = self.report_totals(&bundler) {
            log::error!("{}", one_line(&error));
        }
        Ok(code)
    }

    fn report_totals(&self, bundler: &Bundler) -> Result<()> {
        let totals = bundler.attachment.totals()?;
        if !self.quiet {
            log_totals(&totals);
            for comparison in bundler.output.rules.holdbacks().comparisons() {
                log::info!("{comparison}");
            }
        }
        bundler.output.stats.write(&totals)
    }

    /// Starts the command. The inner error is the command's: not found, or not executable.
    fn start(
        &self,
        cgroup: &Cgroup,
        user: Option<&User>,
        inherited: &InheritedSignals,
        descriptors: Descriptors,
    ) -> Result<io::Result<Pid>> {
        let mut procs = cgroup.procs()?;
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]);
        if let Some(user) = user {
            command.envs(user.environment());
        }
        let user = user.cloned();
        let inherited = inherited.clone();
        // SAFETY: between fork and exec it only makes system calls, and shares no memory with the
        // parent.
        unsafe {
            command.pre_exec(move || {
                procs.write_all(b"0")?;
                descriptors.restore()?;
                if let Some(user) = &user {
                    user.switch_to()?;
                }
                inherited.restore().map_err(io::Error::from)
            });
        }
        Ok(command
            .spawn()
            .map(|child| Pid::from_raw(child.id().cast_signed())))
    }
}

// The user of the command, which does not need pillion's privileges.

/// A user other than the one pillion runs as.
#[derive(Clone)]
pub struct User {
    name: CString,
    home: String,
    uid: Uid,
    gid: Gid,
}

impl User {
    /// Returns the named user, or the caller of a setuid pillion or of sudo; `None` if this process
    /// runs as that user.
    fn for_command(name: Option<&str>) -> Result<Option<Self>> {
        if name.is_some() {
            refuse_if_setuid("--user")?;
        }
        let found = match (name, calling_uid()) {
            (Some(name), _) => unistd::User::from_name(name)
                .with_context(|| format!("look up the user {name}"))?
                .ok_or_else(|| BadInput(format!("--user: no such user: `{name}`")))?,
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

    /// Returns the environment variables that name the user.
    pub fn environment(&self) -> [(&'static str, String); 3] {
        let name = self.name.to_string_lossy().into_owned();
        [
            ("USER", name.clone()),
            ("LOGNAME", name),
            ("HOME", self.home.clone()),
        ]
    }

    /// Switches this process to the user, and drops its privileges for good.
    fn switch_to(&self) -> io::Result<()> {
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
