//! What is printed of an outcome.

use pillion_stats::report::{Column, Table, number};

use crate::gate::Accepted;
use crate::outcome::Outcome;

/// Prints what was found, and what is wrong.
pub fn outcome(outcome: &Outcome, accepted: &Accepted) {
    if !outcome.costs.is_empty() {
        print!("{}", costs(outcome, accepted).to_text());
    }
    for stream in &outcome.streams {
        println!(
            "{}: stream, {}: {} messages verified, {} redundant bytes, {} losses repaired, {} \
             reactions",
            outcome.name,
            stream.name,
            stream.messages,
            stream.redundant_bytes,
            stream.hidden_losses,
            stream.reactions
        );
    }
    let (name, passed) = (&outcome.name, outcome.wire_passed());
    if !outcome.environments {
        println!("{name}: tests of the wire: {passed}");
    }
    for test in &outcome.again {
        println!("{name}: failed at first, and passed alone: {test}");
    }
    for left_out in &outcome.left_out {
        println!(
            "{}: left out: {}: {}",
            outcome.name, left_out.tests, left_out.reason
        );
    }
    for failure in &outcome.failures {
        println!("{}: FAILED: {failure}", outcome.name);
    }
}

fn costs(outcome: &Outcome, accepted: &Accepted) -> Table {
    let columns = [
        Column::left("program"),
        Column::right("verified instructions"),
        Column::right("accepted"),
    ];
    let mut table = Table::new("", columns);
    for (program, cost) in &outcome.costs {
        let before = accepted.of(&outcome.name, program);
        let before = before.map_or_else(String::new, |cost| number::count(cost.into()));
        table.row([program.clone(), number::count((*cost).into()), before]);
    }
    table
}
