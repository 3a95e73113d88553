use std::fs;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The cgroups right below one, with the kernel's ids of them.
pub(crate) fn below(folder: &Path) -> impl Iterator<Item = (PathBuf, u64)> + use<> {
    /// Links to a folder with none in it: its name and its own dot.
    const ALONE: u64 = 2;
    // Most cgroups have dozens of files and no folder: their files need not be gone through.
    let has_any = fs::metadata(folder).is_ok_and(|it| it.nlink() != ALONE);
    let entries = has_any.then(|| fs::read_dir(folder).into_iter().flatten().flatten());
    let is_folder = |it: &fs::DirEntry| it.file_type().is_ok_and(|kind| kind.is_dir());
    let folders = entries.into_iter().flatten().filter(is_folder);
    folders.map(|it| (it.path(), it.ino()))
}
