use clap::{Args, Command, Id};

/// All options of a struct, as other options refer to them.
pub fn arguments<A: Args>() -> Vec<Id> {
    let command = A::augment_args(Command::new(""));
    let options = command.get_arguments().map(clap::Arg::get_id);
    options.cloned().collect()
}
