//! Environment of the soak: two hosts with a lossy path, and cgroups whose outermost one is the
//! root for pillion.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use pillion_lab::Namespace;
use pillion_lab::path::{Direction, Disorder, Loss, PathConfig};
use pillion_tests::HostPair;

use super::memory::Accounting;
use super::talk::PATIENCE;
use crate::common::own_cgroup;

pub struct Ground {
    pub pair: HostPair,
    pub accounting: Accounting,
    mount: PathBuf,
    top: PathBuf,
}

/// Cgroup for one process of the soak.
#[derive(Debug)]
pub struct Group(PathBuf);

/// Returns a path with losses in runs and single losses, reordered and duplicated packets.
fn path(seed: u64) -> PathConfig {
    let direction = |in_good| Direction {
        jitter: Duration::from_millis(1),
        rate_bps: Some(50_000_000),
        queue_packets: 500,
        loss: Loss::GilbertElliott {
            to_bad: 0.005,
            to_good: 0.3,
            in_bad: 0.5,
            in_good,
        },
        disorder: Some(Disorder {
            reorder: 0.002,
            duplicate: 0.002,
            late: Duration::from_millis(15),
        }),
        ..Direction::delayed(Duration::from_millis(20))
    };
    PathConfig {
        forward: direction(0.03),
        backward: direction(0.01),
        seed,
    }
}

impl Ground {
    pub fn create(seed: u64) -> io::Result<Self> {
        let pair = HostPair::create(&path(seed));
        let mount = pillion_bpf::cgroup2_mount().map_err(io::Error::other)?;
        let name = format!("soak-{}", std::process::id());
        let top = own_cgroup().join(&name);
        fs::create_dir(&top)?;
        Ok(Self {
            pair,
            accounting: Accounting::begin(&top, &name)?,
            mount,
            top,
        })
    }

    pub fn group(&self, name: &str) -> io::Result<Group> {
        let path = self.top.join(name);
        fs::create_dir(&path)?;
        Ok(Group(path))
    }

    /// Builds a command on a host and in a cgroup.
    pub fn program(&self, host: &Namespace, group: &Group, words: &[String]) -> Command {
        let doors = [Some(group.door()), self.accounting.door()];
        let mut command = host.command(&words[0]);
        command.args(&words[1..]);
        // SAFETY: between fork and exec only system calls are made.
        unsafe { command.pre_exec(move || enter(&doors)) };
        command
    }

    /// Builds a command in a cgroup, with the soak's outermost cgroup mounted as the root.
    pub fn cell(&self, host: &Namespace, group: &Group, words: &[String]) -> Command {
        let outermost = [Some(Group(self.top.clone()).door())];
        let doors = [Some(group.door()), self.accounting.door()];
        let root = self.mount.clone();
        let mut command = host.command(&words[0]);
        command.args(&words[1..]);
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                enter(&outermost)?;
                unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWCGROUP)?;
                let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
                mount(None::<&str>, "/", None::<&str>, private, None::<&str>)?;
                // A file system cannot be mounted over itself.
                umount2(&root, MntFlags::MNT_DETACH)?;
                let (kind, none) = (Some("cgroup2"), None::<&str>);
                mount(kind, &root, kind, MsFlags::empty(), none)?;
                enter(&doors)
            });
        }
        command
    }

    /// Kills all processes and removes all cgroups, also after failures.
    pub fn clear(&self) {
        fn remove(cgroup: &Path) {
            below(cgroup).iter().for_each(|inner| remove(inner));
            let _ = fs::remove_dir(cgroup);
        }
        let begun = Instant::now();
        while self.top.exists() && begun.elapsed() < PATIENCE {
            let _ = fs::write(self.top.join("cgroup.kill"), "1");
            remove(&self.top);
            thread::sleep(Duration::from_millis(20));
        }
        self.accounting.end();
    }
}

fn enter(doors: &[Option<io::Result<File>>]) -> io::Result<()> {
    for door in doors.iter().flatten() {
        match door {
            Ok(door) => (&mut &*door).write_all(b"0")?,
            Err(error) => return Err(error.kind().into()),
        }
    }
    Ok(())
}

impl Group {
    fn door(&self) -> io::Result<File> {
        door(&self.0)
    }

    /// Removes the cgroup once it has no process and no child cgroup.
    pub fn remove(&self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            match fs::remove_dir(&self.0) {
                Ok(()) => return Ok(()),
                // Stalled connections report themselves before this time.
                Err(error) if begun.elapsed() > 5 * PATIENCE => {
                    let left = self.left();
                    return Err(format!("{}: {error}: {left}", self.0.display()));
                }
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn left(&self) -> String {
        let processes = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let processes: Vec<_> = processes.lines().map(name_of).collect();
        let below = below(&self.0);
        format!("remaining processes {processes:?} and cgroups {below:?}")
    }
}

fn name_of(process: &str) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    format!("{process} {}", name.trim_end())
}

fn below(cgroup: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(cgroup).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Opens the file to which a process writes `0` to join the cgroup.
pub fn door(cgroup: &Path) -> io::Result<File> {
    let file = cgroup.join("cgroup.procs");
    OpenOptions::new().write(true).open(file)
}
