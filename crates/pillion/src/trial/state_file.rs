use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use nix::unistd::Uid;
use pillion_bpf::host::atomic_file;

use crate::trial::state::VERSION;
use crate::trial::{Setting, StateError, TrialState};

/// Readable by the owner only, because the file contains the key of the assignment.
const FILE_MODE: u32 = 0o600;

/// File of a trial state, locked by this process while the value lives.
#[derive(Debug)]
pub struct StateFile {
    name: String,
    /// Path with symbolic links resolved.
    path: PathBuf,
    /// Current file, locked; `None` before the first save.
    lock: Option<Flock<File>>,
}

impl StateFile {
    /// Locks the file and reads its state; `None` if the file does not exist.
    ///
    /// # Errors
    /// [`StateError::File`] and [`StateError::Foreign`]; [`StateError::InUse`] if another process
    /// has locked the file; [`StateError::OtherTrial`] if its settings differ.
    pub fn open(path: &Path, setting: &Setting) -> Result<(Self, Option<TrialState>), StateError> {
        let name = path.display().to_string();
        let locked = atomic_file::place(path).and_then(|path| Ok((lock_current(&path)?, path)));
        let (lock, path) = locked.map_err(|error| state_error(&name, error))?;
        let state = lock.as_ref().map(|lock| read(&name, lock, setting));
        let state = state.transpose()?;
        Ok((Self { name, path, lock }, state))
    }

    /// Writes the state atomically: readers see the old state until the new one is complete.
    ///
    /// # Errors
    /// [`StateError::File`]; [`StateError::InUse`] if another process has replaced the file.
    pub fn save(&mut self, state: &TrialState) -> Result<(), StateError> {
        self.write(state)
            .map_err(|error| state_error(&self.name, error))
    }

    fn write(&mut self, state: &TrialState) -> io::Result<()> {
        let text = serde_json::to_vec(state)?;
        let mut new = atomic_file::create(&self.path, FILE_MODE).map_err(foreign_lock_error)?;
        new.as_file_mut().write_all(&text)?;
        new.as_file().sync_all()?;
        let ours = self.lock.as_ref().map(|lock| is_current(lock, &self.path));
        let lock = match ours.transpose()? {
            Some(true) => new.persist(&self.path)?,
            Some(false) | None => new.persist_noclobber(&self.path)?,
        };
        // From here on the new file is in place, even if syncing the directory fails.
        self.lock = Some(lock);
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty());
        // The directory entry needs its own fsync.
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn state_error(name: &str, error: io::Error) -> StateError {
    use io::ErrorKind::{AlreadyExists, WouldBlock};
    let name = name.to_owned();
    match error.kind() {
        WouldBlock | AlreadyExists => StateError::InUse { name },
        _ => StateError::File { name, error },
    }
}

fn read(name: &str, file: &File, setting: &Setting) -> Result<TrialState, StateError> {
    let name = || name.to_owned();
    let foreign = |reason: String| StateError::Foreign {
        name: name(),
        reason,
    };
    let state = serde_json::from_reader(BufReader::new(file));
    let state: TrialState = state.map_err(|error| foreign(error.to_string()))?;
    if state.version != VERSION {
        return Err(foreign(format!(
            "version {}, expected {VERSION}",
            state.version
        )));
    }
    match state.setting.first_difference(setting) {
        None => Ok(state),
        Some((difference, old, new)) => Err(StateError::OtherTrial {
            name: name(),
            difference,
            old,
            new,
        }),
    }
}

/// Opens and locks the file at a path; `None` if it does not exist.
fn lock_current(path: &Path) -> io::Result<Option<Flock<File>>> {
    loop {
        let mut options = File::options();
        // A FIFO at this path must not block.
        options
            .read(true)
            .write(true)
            .custom_flags(nix::libc::O_NONBLOCK);
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => atomic_file::lock(file?)?,
        };
        // The previous owner may have replaced the file in the meantime.
        if is_current(&file, path)? {
            check_owner(&file)?;
            return Ok(Some(file));
        }
    }
}

/// Rejects files that other users can write, because the state decides the assignment and the
/// verdict.
fn check_owner(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    let is_owner = metadata.uid() == Uid::effective().as_raw();
    match metadata.is_file() && is_owner && metadata.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::other(
            "other users can write it; use a file in a directory of your own with --state",
        )),
    }
}

/// Distinguishes a foreign lock on the temporary file from a lock of another trial.
fn foreign_lock_error(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::other("another process has locked its temporary file")
        }
        _ => error,
    }
}

/// Returns true if this file is still the one at the path.
fn is_current(file: &File, path: &Path) -> io::Result<bool> {
    match atomic_file::is_at(file, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use nix::unistd::setfsuid;

    use super::*;

    fn state() -> TrialState {
        TrialState::new(Setting::example(), [u64::MAX, 3])
    }

    #[test]
    fn reopened_file_returns_saved_state() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.json");
        let open = || StateFile::open(&path, &Setting::example()).unwrap();
        let (mut file, missing) = open();
        assert_eq!(missing, None);
        let mut state = state();
        file.save(&state).unwrap();
        state.left_out = 5;
        file.save(&state).unwrap();
        drop(file);
        assert_eq!(open().1.unwrap(), state);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn two_trials_cannot_share_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.json");
        let open = || StateFile::open(&path, &Setting::example());
        let in_use = |error: &StateError| matches!(error, StateError::InUse { .. });
        let (mut first, mut second) = (open().unwrap().0, open().unwrap().0);
        first.save(&state()).unwrap();
        assert!(in_use(&second.save(&state()).unwrap_err()));
        for _ in 0..2 {
            assert!(in_use(&open().unwrap_err()));
            first.save(&state()).unwrap();
        }
        // Removing the file abandons its trial, so a new trial can use the path.
        fs::remove_file(&path).unwrap();
        second.save(&state()).unwrap();
        assert!(in_use(&first.save(&state()).unwrap_err()));
        drop(second);
        open().unwrap();
    }

    #[test]
    fn symlinked_file_is_followed_and_locked() {
        let folder = tempfile::tempdir().unwrap();
        let [link, target] = ["link", "there"].map(|it| folder.path().join(it));
        symlink("there", &link).unwrap();
        let open = |path| StateFile::open(path, &Setting::example());
        let (mut file, missing) = open(&link).unwrap();
        assert_eq!(missing, None);
        for _ in 0..2 {
            file.save(&state()).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            for path in [&link, &target] {
                let state_error = open(path).unwrap_err();
                assert!(
                    matches!(state_error, StateError::InUse { .. }),
                    "{state_error}"
                );
            }
        }
        drop(file);
        assert_eq!(open(&target).unwrap().1.unwrap(), state());
    }

    #[test]
    fn save_removes_leftover_file_and_sets_mode_0600() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.json");
        let leftover = folder.path().join(".trial.json.new");
        let (mut file, _) = StateFile::open(&path, &Setting::example()).unwrap();
        for _ in 0..2 {
            fs::write(&leftover, "half of a state").unwrap();
            file.save(&state()).unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
            let permissions = fs::metadata(&path).unwrap().permissions();
            assert_eq!(permissions.mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn foreign_or_group_writable_file_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.json");
        let open = || StateFile::open(&path, &Setting::example());
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let state_error = open().unwrap_err();
        assert!(
            matches!(state_error, StateError::File { .. }),
            "{state_error}"
        );
        fs::remove_file(&path).unwrap();
        let (mut file, _) = open().unwrap();
        let temporary = File::create(folder.path().join(".trial.json.new")).unwrap();
        let lock = atomic_file::lock(temporary).unwrap();
        let failed = file.save(&state()).unwrap_err();
        assert!(matches!(failed, StateError::File { .. }), "{failed}");
        drop(lock);
        file.save(&state()).unwrap();
        drop(file);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        let state_error = open().unwrap_err();
        assert!(
            matches!(state_error, StateError::File { .. }),
            "{state_error}"
        );
        if Uid::effective().is_root() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            chown(&path, Some(65534), None).unwrap();
            let state_error = open().unwrap_err();
            assert!(
                matches!(state_error, StateError::File { .. }),
                "{state_error}"
            );
        }
    }

    /// Root ignores file permissions, so the test runs as another file-system user.
    #[test]
    fn failed_directory_sync_keeps_file_ownership() {
        const NOBODY: u32 = 65534;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.json");
        if Uid::effective().is_root() {
            chown(folder.path(), Some(NOBODY), None).unwrap();
            setfsuid(Uid::from_raw(NOBODY));
        }
        let allow = |mode| {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        };
        let (mut file, _) = StateFile::open(&path, &Setting::example()).unwrap();
        allow(0o300);
        let failed = file.save(&state()).unwrap_err();
        assert!(matches!(failed, StateError::File { .. }), "{failed}");
        allow(0o700);
        file.save(&state()).unwrap();
    }

    #[test]
    fn state_of_another_trial_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.json");
        let open = |setting: &Setting| StateFile::open(&path, setting);
        let (mut file, _) = open(&Setting::example()).unwrap();
        file.save(&state()).unwrap();
        drop(file);
        let other = Setting {
            bundled_ppm: 300_000,
            ..Setting::example()
        };
        let state_error = open(&other).unwrap_err().to_string();
        assert!(
            state_error.contains("--share") && state_error.contains("30%"),
            "{state_error}"
        );
        fs::write(&path, "{}").unwrap();
        let state_error = open(&Setting::example()).unwrap_err();
        assert!(matches!(state_error, StateError::Foreign { .. }));
    }
}
