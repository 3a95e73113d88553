use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use pillion_traffic::{Distribution, Kind, profiles};

use super::group::Wrong;

/// What each stream does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KindName {
    /// A message each inter-transmission time, whatever TCP does
    Thin,
    /// A message of always the same size on a fixed beat
    Isochronous,
    /// A message of every stream at each tick, as a game server sends
    Burst,
    /// As much as TCP takes
    Greedy,
    /// A message, its answer, a time to think, and the next
    RequestResponse,
}

/// The options that say what a stream does; those not given have defaults.
#[derive(Debug, clap::Args)]
pub struct KindArgs {
    /// What each stream does
    #[arg(long, value_enum, default_value = "thin")]
    pub kind: KindName,

    /// Milliseconds between two messages (kinds thin, isochronous and burst): MEAN, MEAN:SD
    /// (normal), exponential:MEAN, pareto:MEAN:SHAPE, lognormal:MEAN:SD or table:FILE
    /// [default: 100:10, and 100 where it must be fixed]
    #[arg(long, value_name = "MS", value_parser = Distribution::parse)]
    itt: Option<Distribution>,

    /// Payload of a message in bytes, in the same ways [default: 120, greedy 65536]
    #[arg(long, value_name = "BYTES", value_parser = Distribution::parse)]
    size: Option<Distribution>,

    /// Milliseconds from an answer to the next message (kind request-response), in the same
    /// ways [default: 100]
    #[arg(long, value_name = "MS", value_parser = Distribution::parse)]
    think: Option<Distribution>,

    /// What an application sends instead: sizes and times of one that `pillion traffic profiles`
    /// lists
    #[arg(long, value_name = "NAME", conflicts_with_all = ["kind", "itt", "size", "think", "answer"])]
    pub profile: Option<String>,

    /// Payload of an answer in bytes (kind request-response) [default: 120]
    #[arg(long, value_name = "BYTES")]
    answer: Option<u32>,
}

impl KindArgs {
    /// The kind that they make.
    ///
    /// # Errors
    /// Each option that says something which the kind has not, or which must be fixed.
    pub fn kind(&self) -> Result<Kind, Vec<Wrong>> {
        if let Some(name) = &self.profile {
            return profile(name).map_err(|wrong| vec![wrong]);
        }
        let given = [
            ("itt", self.itt.is_some()),
            ("think", self.think.is_some()),
            ("answer", self.answer.is_some()),
        ];
        let given = given.into_iter().filter(|(_, given)| *given);
        let mut wrong: Vec<_> = given
            .filter(|(option, _)| !uses(self.kind, option))
            .map(|(option, _)| self.surplus(option))
            .collect();
        let made = self.made();
        match made {
            Ok(kind) if wrong.is_empty() => Ok(kind),
            Ok(_) => Err(wrong),
            Err(more) => {
                wrong.extend(Some(more).filter(|more| uses(self.kind, more.option)));
                Err(wrong)
            }
        }
    }

    fn made(&self) -> Result<Kind, Wrong> {
        use KindName::{Burst, Greedy, Isochronous, RequestResponse, Thin};
        let size = self.size.clone().unwrap_or(Distribution::constant(120.0));
        Ok(match self.kind {
            Thin => Kind::Thin {
                itt: self.itt.clone().unwrap_or(Distribution::Normal {
                    mean: 100.0,
                    sd: 10.0,
                }),
                size,
            },
            Isochronous => Kind::Isochronous {
                itt: self.beat()?,
                size: bytes("size", Some(&size), 120)?,
            },
            Burst => Kind::Burst {
                tick: self.beat()?,
                size,
            },
            Greedy => Kind::Greedy {
                write: bytes("size", self.size.as_ref(), 65_536)?,
            },
            RequestResponse => Kind::RequestResponse {
                think: self.think.clone().unwrap_or(Distribution::constant(100.0)),
                size,
                answer: self.answer.unwrap_or(120),
            },
        })
    }

    fn beat(&self) -> Result<Duration, Wrong> {
        let ms = fixed("itt", self.itt.as_ref(), 100.0)?;
        Duration::try_from_secs_f64(ms / 1e3)
            .map_err(|error| Wrong::new("itt", format!("`itt` {ms}: {error}")))
    }

    fn surplus(&self, option: &'static str) -> Wrong {
        let kinds = KindName::value_variants().iter();
        let kinds = kinds.filter(|kind| uses(**kind, option));
        let kinds: Vec<_> = kinds.map(|kind| kind.name()).collect();
        let text = format!(
            "`{option}` goes with `kind` {} and not with {}; leave it out",
            kinds.join(" or "),
            self.kind.name(),
        );
        Wrong::new(option, text)
    }
}

impl KindName {
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or(String::new(), |value| value.get_name().to_owned())
    }
}

/// Whether an option says something of a kind.
pub fn uses(kind: KindName, option: &str) -> bool {
    use KindName::{Burst, Isochronous, RequestResponse, Thin};
    match option {
        "itt" => matches!(kind, Thin | Isochronous | Burst),
        "think" | "answer" => kind == RequestResponse,
        _ => true,
    }
}

fn profile(name: &str) -> Result<Kind, Wrong> {
    let profiles = profiles();
    let found = profiles.iter().find(|profile| profile.name == name);
    let names = || {
        profiles
            .iter()
            .map(|profile| profile.name.as_str())
            .collect::<Vec<_>>()
    };
    let unknown = || {
        let names = names().join(", ");
        Wrong::new(
            "profile",
            format!("no profile `{name}`; there are: {names}"),
        )
    };
    let kind = found.ok_or_else(unknown)?.kind();
    kind.map_err(|error| Wrong::new("profile", format!("profile {name}: {error}")))
}

fn fixed(option: &'static str, given: Option<&Distribution>, default: f64) -> Result<f64, Wrong> {
    match given {
        None => Ok(default),
        Some(Distribution::Constant { mean }) => Ok(*mean),
        Some(_) => {
            let text = format!("`{option}`: this kind has a fixed one; give a single number");
            Err(Wrong::new(option, text))
        }
    }
}

fn bytes(option: &'static str, given: Option<&Distribution>, default: u32) -> Result<u32, Wrong> {
    let bytes = fixed(option, given, default.into())?;
    match (0.0..=f64::from(u32::MAX)).contains(&bytes) && bytes.fract() == 0.0 {
        true => Ok(bytes as u32),
        false => {
            let text = format!("`{option}` {bytes}: give a whole number of bytes");
            Err(Wrong::new(option, text))
        }
    }
}
