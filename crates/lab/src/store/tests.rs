use super::*;
use crate::run::{FAILED_SUFFIX, MANIFEST_FILE, RUN_FILE, SUMMARY_FILE};

/// A store with two batches of one experiment.
fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    for time in ["2026-01-01T00-00-00Z", "2026-01-02T00-00-00Z"] {
        let batch = folder.path().join("loss").join(time);
        for run in ["plain", "bundled.broken", "other.part", ".run-1", "notes"] {
            fs::create_dir_all(batch.join(run)).unwrap();
        }
        fs::write(batch.join(EXPERIMENT_FILE), "").unwrap();
        for file in [RUN_FILE, SUMMARY_FILE, MANIFEST_FILE] {
            fs::write(batch.join("plain").join(file), "").unwrap();
        }
        fs::write(
            batch.join("bundled.broken").join(FAILED_SUFFIX),
            "stopped\n",
        )
        .unwrap();
        fs::write(batch.join("other.part").join(RUN_FILE), "").unwrap();
    }
    let store = Store::new(folder.path());
    (folder, store)
}

#[test]
fn only_runs_are_listed_with_state() {
    let (_folder, store) = store();
    let all = store.list().unwrap();
    let names: Vec<&str> = all.iter().map(|batch| batch.name.as_str()).collect();
    assert_eq!(
        names,
        ["loss/2026-01-01T00-00-00Z", "loss/2026-01-02T00-00-00Z"]
    );
    let runs: Vec<_> = all[0]
        .runs
        .iter()
        .map(|run| (&*run.name, &run.state))
        .collect();
    let broken = RunState::Failed("stopped".to_owned());
    assert_eq!(
        runs,
        [
            ("bundled", &broken),
            ("other", &RunState::Incomplete),
            ("plain", &RunState::Complete)
        ]
    );
}

#[test]
fn simultaneous_batches_get_separate_folders() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let open = || BatchFolder::create_timestamped(&store, "loss", "title = \"x\"\n").unwrap();
    std::thread::scope(|scope| {
        let all = [(); 3].map(|()| scope.spawn(open));
        for batch_folder in all {
            batch_folder.join().unwrap();
        }
    });
    assert_eq!(store.list().unwrap().len(), 3);
}

#[test]
fn invalid_experiment_name_creates_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(&folder.path().join("store"));
    for name in ["..", ".hidden", ".", "", "a/b"] {
        let error = BatchFolder::create_timestamped(&store, name, "").unwrap_err();
        assert!(error.is_bad_input(), "{name}: {error}");
        assert!(error.to_string().contains("another name"), "{error}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn experiment_name_finds_latest_batch() {
    let (folder, store) = store();
    let path = |name: &str| store.find(name).unwrap().path().to_owned();
    let last = folder.path().join("loss/2026-01-02T00-00-00Z");
    assert_eq!(path("loss"), last);
    assert_eq!(path("loss/2026-01-02T00-00-00Z/plain"), last.join("plain"));
    assert_eq!(
        path(&last.join("plain").display().to_string()),
        last.join("plain")
    );
    assert_eq!(
        path("loss/2026-01-02T00-00-00Z/bundled"),
        last.join("bundled.broken")
    );
    for unknown in ["gain", "loss/2026-01-02T00-00-00Z/notes", "..", ""] {
        let error = store.find(unknown).unwrap_err();
        assert!(
            matches!(error, Error::NotStored { .. }),
            "{unknown}: {error}"
        );
    }
}

#[test]
fn latest_batch_is_by_run_time_not_by_name() {
    let (folder, store) = store();
    let quick = folder.path().join("loss/quick");
    let default = folder.path().join("loss/default");
    for batch_folder in [&quick, &default] {
        let run = batch_folder.join("plain");
        fs::create_dir_all(&run).unwrap();
        fs::write(batch_folder.join(EXPERIMENT_FILE), "").unwrap();
        for file in [RUN_FILE, SUMMARY_FILE, MANIFEST_FILE] {
            fs::write(run.join(file), "").unwrap();
        }
    }
    let an_hour_on = SystemTime::now() + std::time::Duration::from_secs(3600);
    let run = fs::File::open(default.join("plain")).unwrap();
    run.set_modified(an_hour_on).unwrap();
    assert_eq!(store.find("loss").unwrap().path(), default);
}

#[test]
fn experiment_file_of_locked_batch_is_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let batch_path = folder.path().join("runs");
    let (batch_folder, lock) = BatchFolder::open_locked(&batch_path, "first").unwrap();
    let error = BatchFolder::open_locked(&batch_path, "second").unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    let text = || fs::read_to_string(batch_folder.folder().join(EXPERIMENT_FILE)).unwrap();
    assert_eq!(text(), "first");
    drop(lock);
    BatchFolder::open_locked(&batch_path, "second").unwrap();
    assert_eq!(text(), "second");
}

#[test]
fn removing_last_batch_removes_experiment_folder() {
    let (folder, store) = store();
    store.remove(&store.find("loss").unwrap()).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
    store.remove(&store.find("loss").unwrap()).unwrap();
    assert!(!folder.path().join("loss").exists());
    assert!(folder.path().exists());
}

#[test]
fn runs_outside_store_are_found_but_not_removed() {
    let (folder, store) = store();
    let other = tempfile::tempdir().unwrap();
    let elsewhere = Store::new(other.path());
    let run = folder.path().join("loss/2026-01-01T00-00-00Z/plain");
    let entry = elsewhere.find(&run.display().to_string()).unwrap();
    assert!(matches!(
        elsewhere.remove(&entry),
        Err(Error::NotStored { .. })
    ));
    // Nor a path that only resembles an experiment.
    let relative_path = Store::new(&folder.path().join("loss"));
    let entry = relative_path.find("2026-01-01T00-00-00Z").unwrap();
    assert!(matches!(
        relative_path.remove(&entry),
        Err(Error::NotStored { .. })
    ));
    assert_eq!(store.list().unwrap().len(), 2);
}

#[test]
fn path_is_in_store_by_its_resolved_target() {
    let (folder, store) = store();
    let experiment = folder.path().join("loss");
    let narrow = Store::new(&experiment.join("2026-01-01T00-00-00Z"));
    let around = experiment.join("2026-01-01T00-00-00Z/../2026-01-02T00-00-00Z");
    let entry = narrow.find(&around.display().to_string()).unwrap();
    assert!(matches!(
        narrow.remove(&entry),
        Err(Error::NotStored { .. })
    ));
    let entry = store.find(&around.display().to_string()).unwrap();
    store.remove(&entry).unwrap();
    assert!(!experiment.join("2026-01-02T00-00-00Z").exists());
    assert!(experiment.join("2026-01-01T00-00-00Z").exists());
}

#[test]
fn missing_store_is_empty() {
    let (folder, _) = store();
    let store = Store::new(&folder.path().join("nowhere"));
    assert!(store.list().unwrap().is_empty());
}

#[test]
fn locked_batch_is_not_removed() {
    let (_folder, store) = store();
    let entry = store.find("loss").unwrap();
    let lock = BatchFolder::at(entry.path()).lock().unwrap();
    let error = store.remove(&entry).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    assert!(entry.path().is_dir());
    drop(lock);
    store.remove(&entry).unwrap();
    assert!(!entry.path().exists());
}

#[test]
fn run_name_with_state_suffix_is_preserved() {
    let folder = tempfile::tempdir().unwrap();
    let name = "x.broken,seed=1";
    let path = folder.path().join(format!("{name}.broken-2"));
    fs::create_dir(&path).unwrap();
    fs::write(path.join(FAILED_SUFFIX), "stopped\n").unwrap();
    let run = StoredRun::read(&path).unwrap().unwrap();
    assert_eq!(run.name, name);
}
