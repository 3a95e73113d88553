use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::unistd::sync;

use crate::engine::RESULTS;
use crate::engine::lines;

/// Where the host's folder is mounted, at the end only: the host's times of access would be
/// seen inside otherwise.
const OUTSIDE: &str = "/run/outside";

/// Copies the results to the host, where it gave a folder for them.
pub fn bring_out() -> Result<(), String> {
    let wanted = fs::read_to_string("/proc/cmdline")
        .is_ok_and(|line| line.split_whitespace().any(|word| word == lines::WANTED));
    if !wanted {
        return Ok(());
    }
    let folder = lines::path(lines::RESULTS);
    fs::create_dir(OUTSIDE).map_err(|error| format!("{OUTSIDE}: {error}"))?;
    mount(
        Some("results"),
        OUTSIDE,
        Some("hostfs"),
        MsFlags::empty(),
        Some(folder.as_str()),
    )
    .map_err(|errno| format!("mount the host's folder: {errno}"))?;
    copy_folder(Path::new(RESULTS), Path::new(OUTSIDE))?;
    sync();
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: io::Error| format!("copy {}: {error}", from.display());
    let mut entries = fs::read_dir(from)
        .and_then(Iterator::collect::<io::Result<Vec<_>>>)
        .map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let failed = |error: io::Error| format!("copy {}: {error}", from.display());
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            fs::create_dir_all(&to).map_err(failed)?;
            copy_folder(&from, &to)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(&from).map_err(failed)?;
            symlink(target, &to).map_err(failed)?;
        } else if kind.is_file() {
            copy_file(&from, &to).map_err(failed)?;
        }
    }
    Ok(())
}

/// Until it is on the host, where writing may fail late.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = fs::File::open(from)?;
    let mut to = fs::File::create(to)?;
    io::copy(&mut from, &mut to)?;
    to.sync_all()
}
