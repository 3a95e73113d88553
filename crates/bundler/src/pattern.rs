//! Names with shells' wildcards.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// True if a name has wildcards: `*`, `?` or `[...]`.
pub(crate) fn is_pattern(name: &OsStr) -> bool {
    name.as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

/// What in a folder has a name like this, in order; wildcards do not stand for a dot in front.
pub(crate) fn matching(folder: &Path, pattern: &OsStr) -> Vec<PathBuf> {
    if !is_pattern(pattern) {
        let path = folder.join(pattern);
        return path.exists().then_some(path).into_iter().collect();
    }
    let Ok(pattern) = CString::new(pattern.as_bytes()) else {
        return Vec::new();
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|entry| is_like(&entry.file_name(), &pattern))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

fn is_like(name: &OsStr, pattern: &CString) -> bool {
    CString::new(name.as_bytes()).is_ok_and(|name| {
        // SAFETY: both are strings that end with a zero and live across the call.
        unsafe { libc::fnmatch(pattern.as_ptr(), name.as_ptr(), libc::FNM_PERIOD) == 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_are_those_of_shells() {
        let folder = Path::new("/proc/self");
        let names = |pattern: &str| -> Vec<_> {
            let found = matching(folder, OsStr::new(pattern));
            let names = found.iter().filter_map(|path| path.file_name()?.to_str());
            names.map(str::to_owned).collect()
        };
        assert_eq!(names("sta[t]"), ["stat"]);
        assert_eq!(names("stat?"), ["statm"]);
        assert_eq!(names("oom_score*"), ["oom_score", "oom_score_adj"]);
        assert_eq!(names("stat"), ["stat"]);
        assert!(names("no such").is_empty() && names("[").is_empty());
    }
}
