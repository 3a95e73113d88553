//! Kernels as a distribution ships them: found in its archive, verified, and kept in a cache.
//!
//! Nothing is installed, and the host's own package sources stay as they are.

mod archive;
mod modules;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::catalogue::Wanted;
use archive::{Archive, succeeded};

pub use modules::Modules;

/// A kernel's files.
#[derive(Debug, Clone, Default)]
pub struct Stock {
    /// What `uname -r` says.
    pub release: String,
    /// The version of its package.
    pub version: String,
    /// The image that is booted.
    pub image: PathBuf,
    /// The folder of its modules.
    pub modules: PathBuf,
}

/// Where the kernel's folder begins its name; the rest is the package's version.
const KEPT: &str = "linux_";

/// The newest that the archive has; where the archive cannot be asked, the one that was last
/// found, which is said.
pub fn find(wanted: &Wanted, package: &str, say: &dyn Fn(&str)) -> Result<Stock> {
    let folder = pillion_lab::cache("kernels", "PILLION_KERNELS_CACHE").join(&wanted.name);
    let archive = Archive::new(&folder.join("apt"), wanted)?;
    match archive.update() {
        Ok(()) => fetch(&archive, &folder, package, say),
        Err(error) => match kept(&folder)? {
            Some(kept) => {
                say(&format!("{}: as last found: {error}", wanted.name));
                stock(&kept)
            }
            None => Err(error),
        },
    }
}

fn fetch(archive: &Archive, folder: &Path, package: &str, say: &dyn Fn(&str)) -> Result<Stock> {
    let version = archive.candidate(package)?;
    let place = folder.join(format!("{KEPT}{version}"));
    if !place.exists() {
        let packages = kernel_packages(archive, package, &version)?;
        say(&format!("fetching {}", packages.join(", ")));
        let new = tempfile::tempdir_in(folder).context("make a folder in the cache")?;
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
        if let Some(old) = kept(folder)? {
            fs::remove_dir_all(&old).with_context(|| format!("{}", old.display()))?;
        }
        fs::rename(&root, &place).with_context(|| format!("{}", place.display()))?;
    }
    stock(&place)
}

/// The packages that hold the kernel and its modules: until Debian 13 one, several since.
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

fn kept(folder: &Path) -> Result<Option<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    Ok(paths.find(|path| version(path).is_some()))
}

fn version(place: &Path) -> Option<&str> {
    place.file_name()?.to_str()?.strip_prefix(KEPT)
}

/// The kernel unpacked at a place.
fn stock(place: &Path) -> Result<Stock> {
    let folders = ["lib/modules", "usr/lib/modules"].map(|folder| place.join(folder));
    let releases = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let modules = releases
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .next();
    let modules = modules.with_context(|| format!("no modules in {}", place.display()))?;
    let release = modules
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let images = [
        place.join(format!("boot/vmlinuz-{release}")),
        modules.join("vmlinuz"),
    ];
    let image = images.into_iter().find(|image| image.exists());
    Ok(Stock {
        version: version(place).unwrap_or_default().to_owned(),
        image: image.with_context(|| format!("no kernel in {}", place.display()))?,
        modules,
        release,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_found_wherever_its_packages_put_it() {
        let folder = tempfile::tempdir().unwrap();
        for (version, modules, image) in [
            ("6.1.176-1", "lib/modules/6.1.0-50", "boot/vmlinuz-6.1.0-50"),
            (
                "7.2-1",
                "usr/lib/modules/7.2",
                "usr/lib/modules/7.2/vmlinuz",
            ),
        ] {
            let place = folder.path().join(format!("{KEPT}{version}"));
            for path in [modules, "boot"] {
                fs::create_dir_all(place.join(path)).unwrap();
            }
            fs::write(place.join(image), "").unwrap();
            let stock = stock(&place).unwrap();
            assert_eq!(stock.version, version);
            assert_eq!(stock.modules, place.join(modules));
            assert_eq!(stock.image, place.join(image));
            assert!(modules.ends_with(&stock.release));
        }
        assert!(stock(&folder.path().join("nothing")).is_err());
    }
}
