use super::*;
use crate::run::{BROKEN, MANIFEST_FILE, RUN_FILE, SUMMARY_FILE};

/// A store with one experiment made twice.
fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    for time in ["2026-01-01T00-00-00Z", "2026-01-02T00-00-00Z"] {
        let made = folder.path().join("loss").join(time);
        for run in ["plain", "bundled.broken", "other.part", ".run-1", "notes"] {
            fs::create_dir_all(made.join(run)).unwrap();
        }
        fs::write(made.join(EXPERIMENT_FILE), "").unwrap();
        for file in [RUN_FILE, SUMMARY_FILE, MANIFEST_FILE] {
            fs::write(made.join("plain").join(file), "").unwrap();
        }
        fs::write(made.join("bundled.broken").join(BROKEN), "stopped\n").unwrap();
        fs::write(made.join("other.part").join(RUN_FILE), "").unwrap();
    }
    let store = Store::new(folder.path());
    (folder, store)
}

#[test]
fn runs_are_listed_with_their_state_and_nothing_else_is() {
    let (_folder, store) = store();
    let all = store.list().unwrap();
    let names: Vec<&str> = all.iter().map(|made| made.name.as_str()).collect();
    assert_eq!(
        names,
        ["loss/2026-01-01T00-00-00Z", "loss/2026-01-02T00-00-00Z"]
    );
    let runs: Vec<_> = all[0]
        .runs
        .iter()
        .map(|run| (&*run.name, &run.state))
        .collect();
    let broken = State::Broken("stopped".to_owned());
    assert_eq!(
        runs,
        [
            ("bundled", &broken),
            ("other", &State::Part),
            ("plain", &State::Whole)
        ]
    );
}

#[test]
fn makings_that_begin_together_have_a_folder_each() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path());
    let begin = || Making::begin_now(&store, "loss", "title = \"x\"\n").unwrap();
    std::thread::scope(|scope| {
        let all = [(); 3].map(|()| scope.spawn(begin));
        for making in all {
            making.join().unwrap();
        }
    });
    assert_eq!(store.list().unwrap().len(), 3);
}

#[test]
fn no_experiment_is_kept_where_it_would_not_be_found_or_outside_of_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(&folder.path().join("store"));
    for name in ["..", ".hidden", ".", "", "a/b"] {
        let error = Making::begin_now(&store, name, "").unwrap_err();
        assert!(error.is_bad_input(), "{name}: {error}");
        assert!(error.to_string().contains("another name"), "{error}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_experiments_name_stands_for_the_last_time_and_longer_ones_for_what_they_name() {
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
fn the_last_time_is_that_of_the_last_run_whatever_the_makings_are_called() {
    let (folder, store) = store();
    let quick = folder.path().join("loss/quick");
    let default = folder.path().join("loss/default");
    for making in [&quick, &default] {
        let run = making.join("plain");
        fs::create_dir_all(&run).unwrap();
        fs::write(making.join(EXPERIMENT_FILE), "").unwrap();
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
fn the_file_of_what_another_makes_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("runs");
    let (making, held) = Making::begin_held(&place, "first").unwrap();
    let error = Making::begin_held(&place, "second").unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    let text = || fs::read_to_string(making.folder().join(EXPERIMENT_FILE)).unwrap();
    assert_eq!(text(), "first");
    drop(held);
    Making::begin_held(&place, "second").unwrap();
    assert_eq!(text(), "second");
}

#[test]
fn with_the_last_making_the_experiment_goes_and_before_it_does_not() {
    let (folder, store) = store();
    store.remove(&store.find("loss").unwrap()).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
    store.remove(&store.find("loss").unwrap()).unwrap();
    assert!(!folder.path().join("loss").exists());
    assert!(folder.path().exists());
}

#[test]
fn what_is_elsewhere_is_shown_and_never_removed() {
    let (folder, store) = store();
    let other = tempfile::tempdir().unwrap();
    let elsewhere = Store::new(other.path());
    let run = folder.path().join("loss/2026-01-01T00-00-00Z/plain");
    let found = elsewhere.find(&run.display().to_string()).unwrap();
    assert!(matches!(
        elsewhere.remove(&found),
        Err(Error::NotStored { .. })
    ));
    // Nor what only looks like an experiment from here.
    let inside = Store::new(&folder.path().join("loss"));
    let found = inside.find("2026-01-01T00-00-00Z").unwrap();
    assert!(matches!(
        inside.remove(&found),
        Err(Error::NotStored { .. })
    ));
    assert_eq!(store.list().unwrap().len(), 2);
}

#[test]
fn a_path_that_leads_out_of_the_store_is_not_in_it_and_one_that_leads_in_is() {
    let (folder, store) = store();
    let beside = folder.path().join("loss");
    let narrow = Store::new(&beside.join("2026-01-01T00-00-00Z"));
    let around = beside.join("2026-01-01T00-00-00Z/../2026-01-02T00-00-00Z");
    let found = narrow.find(&around.display().to_string()).unwrap();
    assert!(matches!(
        narrow.remove(&found),
        Err(Error::NotStored { .. })
    ));
    let found = store.find(&around.display().to_string()).unwrap();
    store.remove(&found).unwrap();
    assert!(!beside.join("2026-01-02T00-00-00Z").exists());
    assert!(beside.join("2026-01-01T00-00-00Z").exists());
}

#[test]
fn a_store_that_is_not_there_is_empty() {
    let (folder, _) = store();
    let store = Store::new(&folder.path().join("nowhere"));
    assert!(store.list().unwrap().is_empty());
}

#[test]
fn runs_that_are_being_made_are_not_removed() {
    let (_folder, store) = store();
    let found = store.find("loss").unwrap();
    let held = Making::of(found.path()).hold().unwrap();
    let error = store.remove(&found).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    assert!(found.path().is_dir());
    drop(held);
    store.remove(&found).unwrap();
    assert!(!found.path().exists());
}

#[test]
fn a_run_that_is_called_like_a_state_keeps_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let name = "x.broken,seed=1";
    let path = folder.path().join(format!("{name}.broken-2"));
    fs::create_dir(&path).unwrap();
    fs::write(path.join(BROKEN), "stopped\n").unwrap();
    let run = StoredRun::read(&path).unwrap().unwrap();
    assert_eq!(run.name, name);
}
