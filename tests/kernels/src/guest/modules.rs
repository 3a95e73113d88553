use std::fs::File;

use nix::kmod::{ModuleInitFlags, finit_module};

/// Inserts modules, in this order.
pub fn insert(files: &[String]) -> Result<(), String> {
    for path in files {
        let failed = |error: String| format!("{path}: {error}");
        let file = File::open(path).map_err(|error| failed(error.to_string()))?;
        finit_module(file, c"", ModuleInitFlags::empty())
            .map_err(|errno| failed(errno.to_string()))?;
    }
    Ok(())
}
