//! Kernel modules, in an order in which they can be inserted.
//!
//! The dependency table is not in the package, because it is created on installation. But each
//! module lists its dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::FileHeader;

use super::archive::succeeded;

/// Modules of one kernel.
pub struct Modules {
    files: BTreeMap<String, PathBuf>,
}

/// Module to insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    pub name: String,
    /// Content of the module's file, uncompressed.
    pub content: Vec<u8>,
}

impl Modules {
    /// Finds the modules below a folder.
    pub fn of(folder: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        collect(folder, &mut files).with_context(|| format!("{}", folder.display()))?;
        Ok(Self { files })
    }

    /// Returns the modules with these names that the kernel has, each one after its dependencies.
    pub fn with_dependencies(&self, names: &[String]) -> Result<Vec<Module>> {
        let (mut order, mut seen) = (Vec::new(), BTreeSet::new());
        for name in names {
            self.add(&plain(name), &mut order, &mut seen)?;
        }
        Ok(order)
    }

    fn add(&self, name: &str, order: &mut Vec<Module>, seen: &mut BTreeSet<String>) -> Result<()> {
        let Some(file) = self
            .files
            .get(name)
            .filter(|_| seen.insert(name.to_owned()))
        else {
            return Ok(());
        };
        let content = read(file)?;
        let needed = dependencies(&content).with_context(|| format!("{}", file.display()))?;
        for other in needed {
            self.add(&plain(&other), order, seen)?;
        }
        order.push(Module {
            name: name.to_owned(),
            content,
        });
        Ok(())
    }
}

/// Replaces hyphens of a module's name by underscores, because both spellings occur.
fn plain(name: &str) -> String {
    name.replace('-', "_")
}

fn collect(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else if let Some((name, _)) = entry.file_name().to_string_lossy().split_once(".ko") {
            files.insert(plain(name), path);
        }
    }
    Ok(())
}

fn read(file: &Path) -> Result<Vec<u8>> {
    let tool = match file.extension().and_then(|extension| extension.to_str()) {
        Some("ko") => return fs::read(file).with_context(|| format!("{}", file.display())),
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => bail!("{}: unknown compression", file.display()),
    };
    Ok(succeeded(Command::new(tool).arg("-dc").arg(file))?.stdout)
}

/// Parses a module's dependencies: `depends=a,b` among zero-terminated strings.
fn dependencies(module: &[u8]) -> object::Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(module)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, module)?;
    let Some((_, section)) = sections.section_by_name(endian, b".modinfo") else {
        return Ok(Vec::new());
    };
    use object::read::elf::SectionHeader;
    let mut facts = section.data(endian, module)?.split(|byte| *byte == 0);
    let depends = facts.find_map(|fact| fact.strip_prefix(b"depends="));
    let depends = String::from_utf8_lossy(depends.unwrap_or_default());
    let names = depends.split(',').filter(|name| !name.is_empty());
    Ok(names.map(str::to_owned).collect())
}
