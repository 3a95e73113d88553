use std::env;
use std::path::PathBuf;

/// Returns the cache folder of this kind: the one that `variable` names, otherwise `pillion/<kind>`
/// in the user's cache (XDG Base Directory Specification). Without a home it is in `/var/cache`.
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

/// Returns a path from the environment; `None` if the variable is empty or unset.
pub(crate) fn path(variable: &str) -> Option<PathBuf> {
    let value = env::var_os(variable).filter(|value| !value.is_empty())?;
    Some(PathBuf::from(value))
}
