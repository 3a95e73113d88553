//! Kernels as shipped by a distribution: found in its archive, verified and cached.
//!
//! Nothing is installed, and the host's package sources stay unchanged.

mod archive;
mod modules;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::catalogue::KernelEntry;
use archive::{Archive, succeeded};

pub use modules::Modules;

/// Files of a kernel.
#[derive(Debug, Clone, Default)]
pub struct StockKernel {
    /// Output of `uname -r`.
    pub release: String,
    /// Version of its package.
    pub version: String,
    /// Folder with the unpacked packages.
    pub root: PathBuf,
    /// Boot image.
    pub image: PathBuf,
    /// Folder of its modules.
    pub modules: PathBuf,
}

/// Packages with tools for kernels of other architectures.
const TOOLS: [&str; 4] = ["dash", "iproute2", "tcpdump", "wireguard-tools"];

/// Prefix of a kernel's folder name; the package version follows.
const FOLDER_PREFIX: &str = "linux_";

/// Returns the newest kernel of the archive. If the archive is unreachable, returns the cached
/// kernel and logs that.
pub fn find(entry: &KernelEntry, log: &dyn Fn(&str)) -> Result<StockKernel> {
    let folder = pillion_lab::cache("kernels", "PILLION_KERNELS_CACHE").join(&entry.name);
    let archive = Archive::new(&folder.join("apt"), entry)?;
    match archive.update() {
        Ok(()) => fetch(&archive, &folder, entry, log),
        Err(error) => match cached(&folder)? {
            Some(cached) => {
                log(&format!("{}: using the cached kernel: {error}", entry.name));
                stock(&cached)
            }
            None => Err(error),
        },
    }
}

fn fetch(
    archive: &Archive,
    folder: &Path,
    entry: &KernelEntry,
    log: &dyn Fn(&str),
) -> Result<StockKernel> {
    let package = &entry.package;
    let version = archive.candidate(package)?;
    let kernel_folder = folder.join(format!("{FOLDER_PREFIX}{version}"));
    if !kernel_folder.exists() {
        let mut packages = kernel_packages(archive, package, &version)?;
        if !entry.architecture.is_of_host() {
            packages.extend(archive.with_dependencies(&TOOLS)?);
        }
        log(&format!("fetching {}", packages.join(", ")));
        let new = tempfile::tempdir_in(folder).context("create a folder in the cache")?;
        archive.download(&packages, new.path())?;
        let root = new.path().join("root");
        for file in fs::read_dir(new.path())?.flatten() {
            succeeded(
                Command::new("dpkg-deb")
                    .arg("-x")
                    .arg(file.path())
                    .arg(&root),
            )?;
        }
        if let Some(old) = cached(folder)? {
            fs::remove_dir_all(&old).with_context(|| format!("{}", old.display()))?;
        }
        fs::rename(&root, &kernel_folder)
            .with_context(|| format!("{}", kernel_folder.display()))?;
    }
    stock(&kernel_folder)
}

/// Returns the packages with the kernel and its modules: one until Debian 13, several since.
fn kernel_packages(archive: &Archive, package: &str, version: &str) -> Result<Vec<String>> {
    const PARTS: [&str; 3] = ["linux-image-", "linux-binary-", "linux-modules-"];
    let parts_of = |package: &str, version: &str| {
        let all = archive.dependencies(package, version)?.into_iter();
        let parts = all.filter(|name| PARTS.iter().any(|part| name.starts_with(part)));
        Ok::<Vec<_>, anyhow::Error>(parts.collect())
    };
    let mut packages = parts_of(package, version)?;
    for image in packages.clone() {
        packages.extend(parts_of(&image, &archive.candidate(&image)?)?);
    }
    if packages.is_empty() {
        bail!("{package} {version} depends on no kernel");
    }
    Ok(packages)
}

fn cached(folder: &Path) -> Result<Option<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.find(|path| version(path).is_some()))
}

fn version(kernel_folder: &Path) -> Option<&str> {
    kernel_folder
        .file_name()?
        .to_str()?
        .strip_prefix(FOLDER_PREFIX)
}

/// Returns the kernel unpacked in a folder.
fn stock(kernel_folder: &Path) -> Result<StockKernel> {
    let folders = ["lib/modules", "usr/lib/modules"].map(|folder| kernel_folder.join(folder));
    let releases = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let modules = releases
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .next();
    let modules = modules.with_context(|| format!("no modules in {}", kernel_folder.display()))?;
    let release = modules
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let images = [
        kernel_folder.join(format!("boot/vmlinuz-{release}")),
        modules.join("vmlinuz"),
    ];
    let image = images.into_iter().find(|image| image.exists());
    Ok(StockKernel {
        version: version(kernel_folder).unwrap_or_default().to_owned(),
        root: kernel_folder.to_owned(),
        image: image.with_context(|| format!("no kernel in {}", kernel_folder.display()))?,
        modules,
        release,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_is_found_in_both_package_layouts() {
        let folder = tempfile::tempdir().unwrap();
        for (version, modules, image) in [
            ("6.1.176-1", "lib/modules/6.1.0-50", "boot/vmlinuz-6.1.0-50"),
            (
                "7.2-1",
                "usr/lib/modules/7.2",
                "usr/lib/modules/7.2/vmlinuz",
            ),
        ] {
            let kernel_folder = folder.path().join(format!("{FOLDER_PREFIX}{version}"));
            for path in [modules, "boot"] {
                fs::create_dir_all(kernel_folder.join(path)).unwrap();
            }
            fs::write(kernel_folder.join(image), "").unwrap();
            let stock = stock(&kernel_folder).unwrap();
            assert_eq!(stock.version, version);
            assert_eq!(stock.modules, kernel_folder.join(modules));
            assert_eq!(stock.image, kernel_folder.join(image));
            assert!(modules.ends_with(&stock.release));
        }
        assert!(stock(&folder.path().join("nothing")).is_err());
    }
}
