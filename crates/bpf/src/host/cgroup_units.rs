use std::collections::HashMap;
use std::path::Path;

use crate::host::cgroup_folders::below;
use crate::host::unit::{Unit, of_path};

/// What the sockets of each cgroup are of, by the cgroup's id, where its name or that of one above
/// tells; of those that there are at present below this folder of the cgroup v2 file system.
#[must_use]
pub fn cgroup_units(mount: &Path) -> HashMap<u64, Unit> {
    let mut units = HashMap::new();
    let mut folders = vec![mount.to_owned()];
    while let Some(folder) = folders.pop() {
        for (path, id) in below(&folder) {
            let name = path.strip_prefix(mount).unwrap_or(&path).to_string_lossy();
            if let Some(unit) = of_path(&name) {
                units.insert(id, unit);
            }
            folders.push(path);
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn what_is_below_a_unit_is_the_units() {
        let mount = tempfile::tempdir().unwrap();
        let below = mount.path().join("system.slice/game.service/worker");
        fs::create_dir_all(&below).unwrap();
        let units = cgroup_units(mount.path());
        let of = |path: &Path| units.get(&fs::metadata(path).unwrap().ino());
        let game = Unit::Managed("game.service".to_owned());
        assert_eq!(of(&below), Some(&game));
        assert_eq!(of(below.parent().unwrap()), Some(&game));
        assert_eq!(of(&mount.path().join("system.slice")), None);
    }
}
