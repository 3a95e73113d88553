//! Images of the virtual engine, without a kernel that boots them.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pillion_lab::engine::{EngineError, Image, Job};

fn this_test() -> PathBuf {
    env::current_exe().expect("the test's own file")
}

fn bytes(image: &Image) -> Vec<u8> {
    let mut bytes = Vec::new();
    image.write(&mut bytes).expect("memory takes it");
    bytes
}

fn holds(image: &[u8], text: &str) -> bool {
    let text = text.as_bytes();
    image.windows(text.len()).any(|part| part == text)
}

#[test]
fn equal_contents_give_identical_image() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let mut images = Vec::new();
    for _ in 0..2 {
        // A new file with another inode and another time.
        let _ = fs::remove_file(&file);
        fs::write(&file, "content").unwrap();
        let mut image = Image::new(&this_test()).unwrap();
        image.add_file(&file, "/etc/pillion/file").unwrap();
        image.set_job(&Job {
            program: "sh".to_owned(),
            ..Job::default()
        });
        images.push(bytes(&image));
    }
    assert!(images[0] == images[1]);
    let paths = [
        "init",
        "bin/sh",
        "bin/tc",
        "lib/libc.so.6",
        "etc/pillion/file",
    ];
    for path in paths {
        assert!(holds(&images[0], &format!("{path}\0")), "{path}");
    }
}

#[test]
fn program_is_packed_without_debug_sections() {
    let program = this_test();
    // In two parts, because the program contains this file's text as well.
    let section = ["\0.debug", "info\0"].join("_");
    assert!(holds(&fs::read(&program).unwrap(), &section));
    let image = bytes(&Image::new(&program).unwrap());
    assert!(!holds(&image, &section));
}

#[test]
fn invalid_image_paths_are_rejected() {
    let mut image = Image::new(&this_test()).unwrap();
    for path in ["", "/", "file", "/a/../../b", "./a"] {
        let result = image.add_file(Path::new("/etc/passwd"), path);
        assert!(
            matches!(result, Err(EngineError::File { .. })),
            "{path:?}: {result:?}"
        );
    }
}

#[test]
fn missing_programs_are_listed_together() {
    let mut image = Image::new(&this_test()).unwrap();
    let names = ["sh", "no-such-program", "/nor/this"].map(String::from);
    let missing = image.add_programs(&names).unwrap_err();
    assert_eq!(
        missing.to_string(),
        "not found on this host: no-such-program, /nor/this"
    );
}

#[test]
fn non_executable_program_is_rejected_by_name() {
    let mut image = Image::new(&this_test()).unwrap();
    let result = image.add_program(Path::new("/etc/passwd")).unwrap_err();
    assert_eq!(result.to_string(), "/etc/passwd: not an executable file");
}

#[test]
fn foreign_image_has_only_tools_of_its_root() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "#!").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    for path in ["bin/dash", "bin/ip", "sbin/tc", "usr/lib/tc/normal.dist"] {
        put(path);
    }
    put("usr/lib/other-linux-gnu/libother.so.1");
    let missing = Image::foreign(&this_test(), root.path()).unwrap_err();
    assert!(missing.to_string().contains("tcpdump"), "{missing}");
    put("usr/bin/tcpdump");
    let image = bytes(&Image::foreign(&this_test(), root.path()).unwrap());
    for path in ["init", "bin/sh", "lib/libother.so.1", "lib/tc/normal.dist"] {
        assert!(holds(&image, &format!("{path}\0")), "{path}");
    }
    // The header before a name ends with zeros; the program itself contains such names as well.
    assert!(!holds(&image, &["00000000lib/libc", "so.6\0"].join(".")));
    assert!(holds(&image, &["00000000lib/libother", "so.1\0"].join(".")));
}
