//! What all share that bundle or observe: options of bundling, and the devices chosen by them.

use std::ffi::OsString;

use anyhow::Result;
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use pillion_bpf::{EXPERIMENTAL, Error, Hook, Namespaces, Options, Policy, Selection};
use pillion_cli::settings::{BadInput, Bundling, idle_option, refuse_unsafe};

use crate::lent::refuse;

/// The heading of [`Bundling`] in the help; clap would put it over what comes behind it as well.
const HEADING: &str = "Bundling";

/// The place of options that stand here so that their heading comes first, behind the others of it.
const LAST: usize = 1000;

#[derive(clap::Args)]
pub struct BundlingArgs {
    /// A network device to bundle on, whatever device has this name at the time; repeat for
    /// more [default: all that are up, but lo, and those that come up later]
    #[arg(long = "dev", value_name = "IF", help_heading = HEADING, display_order = LAST)]
    pub devices: Vec<OsString>,

    /// Where in a device's path to stand
    #[arg(long, value_name = "HOOK", default_value = AUTO, value_parser = hook_parser(),
          help_heading = HEADING, display_order = LAST)]
    hook: HookChoice,

    /// Connections that something is kept for at a time, of one user half as many; 4.5 KiB of
    /// the kernel's memory each, charged to pillion's own cgroup. The others stay plain
    #[arg(long, value_name = "N", default_value_t = Policy::MAX_CONNECTIONS,
          value_parser = clap::value_parser!(u32).range(2..), help_heading = HEADING,
          display_order = LAST)]
    pub max_connections: u32,

    #[command(flatten)]
    pub how: Bundling,

    /// Allow what takes a stream out of congestion control
    #[arg(long = "unsafe", help_heading = EXPERIMENTAL, hide_short_help = true)]
    pub allow_unsafe: bool,
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
        refuse_unsafe(&options, self.allow_unsafe)?;
        if let Some(option) = idle_option(&options) {
            let why =
                format!("--{option} is for --level adaptive: give that, too, or leave it out");
            return Err(BadInput(why).into());
        }
        Ok(options)
    }

    /// Refuses what takes more than a user may do by himself, where the privilege is lent.
    pub fn refuse_lent(&self) -> Result<(), BadInput> {
        let companions = &self.how.companions;
        let more = [
            ("--unsafe", self.allow_unsafe),
            ("--congestion", companions.congestion.is_some()),
            ("--rto-min", companions.rto_min.is_some()),
            ("--delack-max", companions.delack_max.is_some()),
            (
                "--max-connections",
                self.max_connections != Policy::MAX_CONNECTIONS,
            ),
        ];
        let asked = more.into_iter().find(|(_, asked)| *asked);
        asked.map_or(Ok(()), |(option, _)| refuse(option))
    }

    /// The options, as the command line has them: those that are off are left out.
    pub fn words(&self) -> Result<String> {
        let keys = toml::to_string(&self.how)?;
        let words = keys
            .lines()
            .filter_map(|line| match line.split_once(" = ")? {
                (_, "false") => None,
                (name, "true") => Some(format!("--{name}")),
                (name, value) => Some(format!("--{name} {}", value.trim_matches('"'))),
            });
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    /// The devices of these network namespaces, of which there is one at least.
    pub fn selection(&self, namespaces: &Namespaces) -> Result<Selection, Error> {
        let selection = Selection::new(&self.devices, namespaces, self.hook())?;
        selection.devices()?;
        Ok(selection)
    }

    /// Where the programs are to stand.
    pub fn hook(&self) -> Hook {
        self.hook.unwrap_or_else(Hook::of_this_kernel)
    }
}
