//! Which kernels there are, and what is run on each: `kernels.toml`.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::BadInput;

/// The whole file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// The package that depends on a suite's newest kernel.
    pub package: String,
    /// Modules to be inserted, by name.
    pub modules: Vec<String>,
    /// Beginnings of names of the tests of the wire that measure time.
    pub timed: Vec<String>,
    /// Tests of the wire that no emulated kernel runs.
    pub left_out: Vec<LeftOut>,
    #[serde(rename = "kernel")]
    pub kernels: Vec<Wanted>,
}

/// A kernel as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// What it is called here.
    pub name: String,
    /// Whose it is, for people.
    pub distribution: String,
    /// The suite of the archive that has it.
    pub suite: String,
    /// The suite has security updates beside it.
    pub security: bool,
    /// Features that the emulated processor must not have.
    #[serde(default)]
    pub without: Vec<String>,
    /// Tests of the wire that this kernel cannot pass, and those left out of all.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
}

/// Tests that are not run, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// The beginning of their names.
    pub tests: String,
    pub reason: String,
}

impl Catalogue {
    /// The one that belongs to this source.
    pub fn load() -> Result<Self> {
        let mut catalogue: Self =
            toml::from_str(include_str!("../kernels.toml")).context("kernels.toml")?;
        for kernel in &mut catalogue.kernels {
            kernel.left_out.extend_from_slice(&catalogue.left_out);
        }
        Ok(catalogue)
    }

    /// Those named, in the file's order; without names, all.
    pub fn choose(&self, names: &[String]) -> Result<Vec<&Wanted>> {
        if let Some(unknown) = names.iter().find(|name| !self.has(name)) {
            let all: Vec<_> = self.kernels.iter().map(|it| it.name.as_str()).collect();
            let all = all.join(", ");
            let line = format!("{unknown}: no such kernel in kernels.toml; there are {all}");
            return Err(BadInput(line).into());
        }
        let kernels = self.kernels.iter();
        let chosen = kernels.filter(|it| names.is_empty() || names.contains(&it.name));
        Ok(chosen.collect())
    }

    fn has(&self, name: &str) -> bool {
        self.kernels.iter().any(|kernel| kernel.name == name)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_left_out_of_all_is_left_out_of_each() {
        let catalogue = Catalogue::load().unwrap();
        assert!(!catalogue.left_out.is_empty());
        for kernel in &catalogue.kernels {
            assert!(kernel.left_out.ends_with(&catalogue.left_out));
        }
    }

    #[test]
    fn tests_that_are_named_are_there() {
        let catalogue = Catalogue::load().unwrap();
        let kernels = catalogue.kernels.iter();
        let left_out = kernels.flat_map(|kernel| &kernel.left_out);
        let left_out = left_out.map(|it| it.tests.as_str());
        let wire = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire");
        for name in left_out.chain(catalogue.timed.iter().map(String::as_str)) {
            let (modules, function) = name.rsplit_once("::").unwrap();
            let file = wire.join(modules.replace("::", "/"));
            let files = [file.with_extension("rs"), file.join("mod.rs")];
            let text = files.iter().find_map(|file| fs::read_to_string(file).ok());
            let text = text.unwrap_or_else(|| panic!("{name}: no such tests"));
            assert!(text.contains(&format!("\nfn {function}")), "{name}");
        }
    }

    #[test]
    fn kernels_are_chosen_by_name_and_a_wrong_name_is_told() {
        let catalogue = Catalogue::load().unwrap();
        assert_eq!(
            catalogue.choose(&[]).unwrap().len(),
            catalogue.kernels.len()
        );
        let first = catalogue.kernels[0].name.clone();
        let chosen = catalogue.choose(std::slice::from_ref(&first)).unwrap();
        assert_eq!(chosen, [&catalogue.kernels[0]]);
        let error = catalogue.choose(&["2.4".to_owned()]).unwrap_err();
        let line = error.to_string();
        assert!(line.starts_with("2.4: no such kernel"), "{line}");
        assert!(line.contains(&first), "{line}");
    }
}
