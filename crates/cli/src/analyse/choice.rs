use pillion_analysis::Choice;
use pillion_settings::BadInput;
use pillion_settings::policy::Peer;

/// Which connections are looked at: those that fit each kind of condition given.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Which connections")]
pub struct ChoiceArgs {
    /// Look at connections with an end at this address or in this network; may be repeated
    #[arg(long, value_name = "ADDRESS[/PREFIX]")]
    address: Vec<Peer>,

    /// Look at connections with an end at this port; may be repeated
    #[arg(long, value_name = "PORT")]
    port: Vec<u16>,

    /// Look at the connection with this number in --list; may be repeated
    #[arg(long, value_name = "N")]
    connection: Vec<u64>,
}

/// An error names a connection that was chosen by its number, and is none of those that were found.
pub fn all_found(choice: &Choice, found: impl Iterator<Item = u64>) -> Result<(), BadInput> {
    choice.missing(found).map_or(Ok(()), |number| {
        let why = format!("no connection {number} among those chosen; --list has their numbers");
        Err(BadInput(why))
    })
}

impl From<ChoiceArgs> for Choice {
    fn from(args: ChoiceArgs) -> Self {
        Self {
            addresses: args
                .address
                .into_iter()
                .flat_map(|peer| peer.nets)
                .collect(),
            ports: args.port,
            connections: args.connection,
        }
    }
}
