//! Sets the version with the commit, for `pillion --version` and the records of runs. Without git, or
//! outside a clone of pillion (a tarball), it is the version only.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let root = Path::new("../..");
    let sources = sources(root);
    for path in &sources {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let version = match commit(root, &sources) {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo:rustc-env=PILLION_VERSION={version}");
}

/// Returns all sources of the binary. Changes elsewhere do not make it dirty.
fn sources(root: &Path) -> Vec<PathBuf> {
    let crates = fs::read_dir(root.join("crates")).into_iter().flatten();
    let parts = crates
        .flatten()
        .flat_map(|entry| ["src", "build.rs", "Cargo.toml"].map(|part| entry.path().join(part)));
    let common = ["bpf", "Cargo.toml", "Cargo.lock"].map(|part| root.join(part));
    let all = parts.chain(common);
    // Cargo treats missing files as changed.
    all.filter(|path| path.exists()).collect()
}

/// Returns the commit's hash, with `-dirty` if a source has changed.
fn commit(root: &Path, sources: &[PathBuf]) -> Option<String> {
    // Skips the repository of another project that contains pillion.
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    // Changes at each commit and checkout.
    let log = git(root, &["rev-parse", "--git-path", "logs/HEAD"])?;
    let log = root.join(log);
    if log.exists() {
        println!("cargo:rerun-if-changed={}", log.display());
    }
    let hash = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let relative = |path: &PathBuf| {
        path.strip_prefix(root)
            .map(|path| path.display().to_string())
    };
    let sources: Vec<String> = sources
        .iter()
        .map(relative)
        .collect::<Result<_, _>>()
        .ok()?;
    let mut status = vec!["status", "--porcelain", "--untracked-files=no", "--"];
    status.extend(sources.iter().map(String::as_str));
    let is_changed = !git(root, &status)?.is_empty();
    Some(hash + if is_changed { "-dirty" } else { "" })
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.env("GIT_OPTIONAL_LOCKS", "0").arg("-C").arg(root);
    let output = git.args(arguments).output().ok()?;
    let text = output.status.success().then_some(output.stdout)?;
    Some(String::from_utf8(text).ok()?.trim().to_owned())
}
