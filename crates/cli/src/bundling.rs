//! What `run` and `attach` share: options of bundling, and where the account goes at the end.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use pillion_bundler::{Hook, Options, Policy, Totals};
use pillion_settings::{BadInput, Bundling, refuse_unsafe};

use crate::lent::refuse;

/// That of [`Options`], and not of what comes behind them.
const HEADING: &str = "Bundling";

#[derive(clap::Args)]
pub struct BundlingArgs {
    #[command(flatten)]
    pub how: Bundling,

    /// Allow what takes a stream out of congestion control
    #[arg(long = "unsafe", help_heading = HEADING)]
    pub allow_unsafe: bool,

    /// A network device to bundle on, whatever device has this name at the time; repeat for
    /// more [default: all that are up, but lo, and those that come up later]
    #[arg(long = "dev", value_name = "IF", help_heading = HEADING)]
    pub devices: Vec<OsString>,

    /// Where in a device's path to stand
    #[arg(long, value_name = "HOOK", default_value = AUTO, value_parser = hook_parser(),
          help_heading = HEADING)]
    hook: HookChoice,

    /// Connections that something is kept for at a time, of one user half as many; 4.5 KiB of
    /// the kernel's memory each, charged to pillion's own cgroup. The others stay plain
    #[arg(long, value_name = "N", default_value_t = Policy::MAX_CONNECTIONS,
          value_parser = clap::value_parser!(u32).range(2..), help_heading = HEADING)]
    pub max_connections: u32,

    /// Write the account of what was done to FILE, as JSON, at the end
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    stats: Option<PathBuf>,
}

/// None: the better one that the kernel has.
type HookChoice = Option<Hook>;

const AUTO: &str = "auto";

fn hook_parser() -> impl TypedValueParser<Value = HookChoice> {
    let auto = PossibleValue::new(AUTO).help("The better one that the kernel has");
    let hooks = Hook::value_variants().iter();
    let hooks = hooks.filter_map(ValueEnum::to_possible_value);
    let words = PossibleValuesParser::new(std::iter::once(auto).chain(hooks));
    words.map(|word| Hook::from_str(&word, false).ok())
}

impl BundlingArgs {
    /// The options, unless they are unsafe and that is not allowed.
    pub fn options(&self) -> Result<Options> {
        let options = self.how.options;
        refuse_unsafe(&options, self.allow_unsafe).map_err(|why| BadInput(why.to_owned()))?;
        Ok(options)
    }

    /// Where the programs are to stand.
    pub fn hook(&self) -> Hook {
        self.hook.unwrap_or_else(Hook::of_this_kernel)
    }

    /// Finds out before anything is begun whether the account can be written.
    pub fn prepare_stats(&self) -> Result<()> {
        let Some(path) = &self.stats else {
            return Ok(());
        };
        refuse("--stats")?;
        write(path, "")
    }

    pub fn write_stats(&self, totals: &Totals) -> Result<()> {
        let Some(path) = &self.stats else {
            return Ok(());
        };
        let mut text = serde_json::to_string_pretty(totals)?;
        text.push('\n');
        write(path, &text)
    }
}

/// A pipe without a reader is no place to wait at.
fn write(path: &Path, text: &str) -> Result<()> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    let file = options.custom_flags(libc::O_NONBLOCK).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("write --stats {}", path.display()))
}
