use std::env;
use std::path::PathBuf;

/// The folder for what takes long to make or to fetch: the one that the variable names, else
/// `pillion/<kind>` in the user's cache (XDG Base Directory Specification), and in `/var/cache`
/// where there is no home.
#[must_use]
pub fn cache(kind: &str, variable: &str) -> PathBuf {
    path(variable).unwrap_or_else(|| {
        path("XDG_CACHE_HOME")
            .or_else(|| path("HOME").map(|home| home.join(".cache")))
            .unwrap_or_else(|| PathBuf::from("/var/cache"))
            .join("pillion")
            .join(kind)
    })
}

/// A path in the environment; an empty one is none.
pub(crate) fn path(variable: &str) -> Option<PathBuf> {
    let value = env::var_os(variable).filter(|value| !value.is_empty())?;
    Some(PathBuf::from(value))
}
