use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use pillion_host::held_file;
use tempfile::NamedTempFile;

use crate::record::VERSION;
use crate::{Record, RecordError, Setting};

/// The file in which a trial's record is kept, as long as this lives by this process alone.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
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
        let mut file = Self {
            path: path.to_owned(),
            held: None,
        };
        let held = take(path).map_err(|error| file.refused(error))?;
        let record = held.as_ref().map(|held| file.read(held, setting));
        let record = record.transpose()?;
        file.held = held;
        Ok((file, record))
    }

    fn read(&self, file: &File, setting: &Setting) -> Result<Record, RecordError> {
        let name = || self.path.display().to_string();
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

    /// Writes the record to the file, which is whole at any moment: an old record stands there until
    /// the new one does.
    ///
    /// # Errors
    /// [`RecordError::File`]; [`RecordError::InUse`] if another process's file stands there now.
    pub fn save(&mut self, record: &Record) -> Result<(), RecordError> {
        self.write(record).map_err(|error| self.refused(error))
    }

    fn write(&mut self, record: &Record) -> io::Result<()> {
        let folder = self.path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        // Readable for its owner alone, for it has the key.
        let mut file = BufWriter::new(NamedTempFile::new_in(folder)?);
        serde_json::to_writer(&mut file, record)?;
        file.flush()?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.as_file().sync_all()?;
        let held = held_file::lock(file.reopen()?)?;
        let ours = self.held.as_ref().map(|held| stands(held, &self.path));
        match ours.transpose()? {
            Some(true) => file.persist(&self.path)?,
            Some(false) | None => file.persist_noclobber(&self.path)?,
        };
        // Whatever comes now, it is this file that stands there.
        self.held = Some(held);
        // The folder's entry is data of its own.
        File::open(folder)?.sync_all()
    }

    fn refused(&self, error: io::Error) -> RecordError {
        use io::ErrorKind::{AlreadyExists, WouldBlock};
        let name = self.path.display().to_string();
        match error.kind() {
            WouldBlock | AlreadyExists => RecordError::InUse { name },
            _ => RecordError::File { name, error },
        }
    }
}

/// The file that stands at a path, locked; `None` if there is none.
fn take(path: &Path) -> io::Result<Option<Flock<File>>> {
    loop {
        let file = match File::options().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => held_file::lock(file?)?,
        };
        // Who had it may have put another one in its place meanwhile.
        if stands(&file, path)? {
            return Ok(Some(file));
        }
    }
}

/// Whether it is this file that stands at a path.
fn stands(file: &File, path: &Path) -> io::Result<bool> {
    match held_file::is_at(file, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        told => told,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    use nix::unistd::{Uid, setfsuid};

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
            refused.contains("--share") && refused.contains("300000"),
            "{refused}"
        );
        fs::write(&path, "{}").unwrap();
        let refused = open(&Setting::example()).unwrap_err();
        assert!(matches!(refused, RecordError::Foreign { .. }));
    }
}
