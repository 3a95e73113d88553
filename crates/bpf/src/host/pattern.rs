//! Names with shell wildcards: `*`, `?` and `[...]`. A backslash is literal, because systemd's
//! cgroup names contain it.

use std::ffi::{CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// True if a name has wildcards.
#[must_use]
pub fn is_pattern(name: &OsStr) -> bool {
    name.as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

/// The entries of a folder that match a name, in order; wildcards do not match a leading dot.
#[must_use]
pub fn matching(folder: &Path, pattern: &OsStr) -> Vec<PathBuf> {
    if !is_pattern(pattern) {
        let path = folder.join(pattern);
        return path.exists().then_some(path).into_iter().collect();
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter(|entry| is_like(&entry.file_name(), pattern, libc::FNM_PERIOD))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// True if a text matches a pattern, whose wildcards match any characters.
pub(crate) fn text_is_like(text: &str, pattern: &str) -> bool {
    is_like(OsStr::new(text), OsStr::new(pattern), 0)
}

/// True if a path matches a pattern, whose wildcards do not match `/`.
pub(crate) fn path_is_like(path: &str, pattern: &str) -> bool {
    is_like(OsStr::new(path), OsStr::new(pattern), libc::FNM_PATHNAME)
}

fn is_like(text: &OsStr, pattern: &OsStr, flags: libc::c_int) -> bool {
    let [text, pattern] = [text, pattern].map(|it| CString::new(it.as_bytes()));
    let (Ok(text), Ok(pattern)) = (text, pattern) else {
        return false;
    };
    let flags = flags | libc::FNM_NOESCAPE;
    // SAFETY: both are strings that end with a zero and live across the call.
    unsafe { libc::fnmatch(pattern.as_ptr(), text.as_ptr(), flags) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_wildcards_match_as_in_shells() {
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

    #[test]
    fn path_wildcards_do_not_match_slash() {
        assert!(text_is_like("a/b", "a*") && !path_is_like("a/b", "a*"));
        assert!(path_is_like("a/b", "*/b"));
    }

    #[test]
    fn backslash_in_pattern_is_literal() {
        let name = r"app-org.example\x2dgame-1.scope";
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join(name)).unwrap();
        let found = matching(
            folder.path(),
            OsStr::new(r"app-org.example\x2dgame-*.scope"),
        );
        assert_eq!(found, [folder.path().join(name)]);
        assert!(text_is_like(r"a\b", r"a\b") && path_is_like(r"n/a\b", r"*/a\b"));
    }
}
