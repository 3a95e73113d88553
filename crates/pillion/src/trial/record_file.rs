use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use nix::unistd::Uid;
use pillion_bpf::host::atomic_file;

use crate::trial::record::VERSION;
use crate::trial::{Record, RecordError, Setting};

/// For its owner alone, for it has the key.
const RIGHTS: u32 = 0o600;

/// The file in which a trial's record is kept, as long as this lives by this process alone.
#[derive(Debug)]
pub struct RecordFile {
    name: String,
    /// Where its path leads.
    place: PathBuf,
    /// The file that stands there, locked; `None` before there is one.
    held: Option<Flock<File>>,
}

impl RecordFile {
    /// Takes the file, and reads the record that is in it; `None` if there is no file.
    ///
    /// # Errors
    /// [`RecordError::File`], [`RecordError::Foreign`]; [`RecordError::InUse`] if another process has
    /// taken it; [`RecordError::OtherTrial`] if the record's setting is another one.
    pub fn open(path: &Path, setting: &Setting) -> Result<(Self, Option<Record>), RecordError> {
        let name = path.display().to_string();
        let taken = atomic_file::place(path).and_then(|place| Ok((take(&place)?, place)));
        let (held, place) = taken.map_err(|error| refused(&name, error))?;
        let record = held.as_ref().map(|held| read(&name, held, setting));
        let record = record.transpose()?;
        Ok((Self { name, place, held }, record))
    }

    /// Writes the record to the file, which is whole at any moment: an old record stands there until
    /// the new one does.
    ///
    /// # Errors
    /// [`RecordError::File`]; [`RecordError::InUse`] if another process's file stands there now.
    pub fn save(&mut self, record: &Record) -> Result<(), RecordError> {
        self.write(record)
            .map_err(|error| refused(&self.name, error))
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        let text = serde_json::to_vec(record)?;
        let mut new = atomic_file::create(&self.place, RIGHTS).map_err(held_by_others)?;
        new.as_file_mut().write_all(&text)?;
        new.as_file().sync_all()?;
        let ours = self.held.as_ref().map(|held| stands(held, &self.place));
        let held = match ours.transpose()? {
            Some(true) => new.persist(&self.place)?,
            Some(false) | None => new.persist_noclobber(&self.place)?,
        };
        // Whatever comes now, it is this file that stands there.
        self.held = Some(held);
        let folder = self.place.parent().filter(|it| !it.as_os_str().is_empty());
        // The folder's entry is data of its own.
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn refused(name: &str, error: io::Error) -> RecordError {
    use io::ErrorKind::{AlreadyExists, WouldBlock};
    let name = name.to_owned();
    match error.kind() {
        WouldBlock | AlreadyExists => RecordError::InUse { name },
        _ => RecordError::File { name, error },
    }
}

fn read(name: &str, file: &File, setting: &Setting) -> Result<Record, RecordError> {
    let name = || name.to_owned();
    let foreign = |why: String| RecordError::Foreign { name: name(), why };
    let record = serde_json::from_reader(BufReader::new(file));
    let record: Record = record.map_err(|error| foreign(error.to_string()))?;
    if record.version != VERSION {
        return Err(foreign(format!("version {}", record.version)));
    }
    match record.setting.differing(setting) {
        None => Ok(record),
        Some((what, old, new)) => Err(RecordError::OtherTrial {
            name: name(),
            what,
            old,
            new,
        }),
    }
}

/// The file that stands at a path, locked; `None` if there is none.
fn take(path: &Path) -> io::Result<Option<Flock<File>>> {
    loop {
        let mut options = File::options();
        // Whatever stands there, it is not waited for.
        options
            .read(true)
            .write(true)
            .custom_flags(nix::libc::O_NONBLOCK);
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => atomic_file::lock(file?)?,
        };
        // Who had it may have put another one in its place meanwhile.
        if stands(&file, path)? {
            check_owner(&file)?;
            return Ok(Some(file));
        }
    }
}

/// A record says how the draw goes on: whoever else can write it decides what the trial finds.
fn check_owner(file: &File) -> io::Result<()> {
    let found = file.metadata()?;
    let is_own = found.uid() == Uid::effective().as_raw();
    match found.is_file() && is_own && found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::other(
            "it is no file of this user's alone; name another file, in a folder of one's own",
        )),
    }
}

/// That a stranger holds what is to take the record's place says nothing of another trial.
fn held_by_others(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::other("another process holds what is to replace it")
        }
        _ => error,
    }
}

/// Whether it is this file that stands at a path.
fn stands(file: &File, path: &Path) -> io::Result<bool> {
    match atomic_file::is_at(file, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        told => told,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use nix::unistd::setfsuid;

    use super::*;

    fn record() -> Record {
        Record::new(Setting::example(), [u64::MAX, 3])
    }

    #[test]
    fn a_trial_goes_on_from_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.json");
        let open = || RecordFile::open(&path, &Setting::example()).unwrap();
        let (mut file, none) = open();
        assert_eq!(none, None);
        let mut record = record();
        file.save(&record).unwrap();
        record.left_out = 5;
        file.save(&record).unwrap();
        drop(file);
        assert_eq!(open().1.unwrap(), record);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn two_trials_have_no_file_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.json");
        let open = || RecordFile::open(&path, &Setting::example());
        let in_use = |error: &RecordError| matches!(error, RecordError::InUse { .. });
        let (mut first, mut second) = (open().unwrap().0, open().unwrap().0);
        first.save(&record()).unwrap();
        assert!(in_use(&second.save(&record()).unwrap_err()));
        for _ in 0..2 {
            assert!(in_use(&open().unwrap_err()));
            first.save(&record()).unwrap();
        }
        // Whoever removes the file ends the trial; who begins then has its own.
        fs::remove_file(&path).unwrap();
        second.save(&record()).unwrap();
        assert!(in_use(&first.save(&record()).unwrap_err()));
        drop(second);
        open().unwrap();
    }

    #[test]
    fn a_record_behind_a_link_is_where_that_leads_and_one_trials_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [link, there] = ["link", "there"].map(|it| folder.path().join(it));
        symlink("there", &link).unwrap();
        let open = |path| RecordFile::open(path, &Setting::example());
        let (mut file, none) = open(&link).unwrap();
        assert_eq!(none, None);
        for _ in 0..2 {
            file.save(&record()).unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            for path in [&link, &there] {
                let refused = open(path).unwrap_err();
                assert!(matches!(refused, RecordError::InUse { .. }), "{refused}");
            }
        }
        drop(file);
        assert_eq!(open(&there).unwrap().1.unwrap(), record());
    }

    #[test]
    fn what_a_killed_trial_left_goes_and_nobody_else_may_read_the_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.json");
        let left = folder.path().join(".trial.json.new");
        let (mut file, _) = RecordFile::open(&path, &Setting::example()).unwrap();
        for _ in 0..2 {
            fs::write(&left, "half of a record").unwrap();
            file.save(&record()).unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
            let rights = fs::metadata(&path).unwrap().permissions();
            assert_eq!(rights.mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_record_of_somebody_elses_is_refused_and_nobody_else_ends_a_trial() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.json");
        let open = || RecordFile::open(&path, &Setting::example());
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let refused = open().unwrap_err();
        assert!(matches!(refused, RecordError::File { .. }), "{refused}");
        fs::remove_file(&path).unwrap();
        let (mut file, _) = open().unwrap();
        let stranger = File::create(folder.path().join(".trial.json.new")).unwrap();
        let held = atomic_file::lock(stranger).unwrap();
        let failed = file.save(&record()).unwrap_err();
        assert!(matches!(failed, RecordError::File { .. }), "{failed}");
        drop(held);
        file.save(&record()).unwrap();
        drop(file);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        let refused = open().unwrap_err();
        assert!(matches!(refused, RecordError::File { .. }), "{refused}");
        if Uid::effective().is_root() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            chown(&path, Some(65534), None).unwrap();
            let refused = open().unwrap_err();
            assert!(matches!(refused, RecordError::File { .. }), "{refused}");
        }
    }

    /// Root would get past what is asked of others, but not where it acts as another user.
    #[test]
    fn a_record_that_stands_there_is_ones_own_though_its_folder_could_not_be_synced() {
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
        let (mut file, _) = RecordFile::open(&path, &Setting::example()).unwrap();
        allow(0o300);
        let failed = file.save(&record()).unwrap_err();
        assert!(matches!(failed, RecordError::File { .. }), "{failed}");
        allow(0o700);
        file.save(&record()).unwrap();
    }

    #[test]
    fn another_trials_record_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.json");
        let open = |setting: &Setting| RecordFile::open(&path, setting);
        let (mut file, _) = open(&Setting::example()).unwrap();
        file.save(&record()).unwrap();
        drop(file);
        let other = Setting {
            bundled_ppm: 300_000,
            ..Setting::example()
        };
        let refused = open(&other).unwrap_err().to_string();
        assert!(
            refused.contains("--share") && refused.contains("30%"),
            "{refused}"
        );
        fs::write(&path, "{}").unwrap();
        let refused = open(&Setting::example()).unwrap_err();
        assert!(matches!(refused, RecordError::Foreign { .. }));
    }
}
