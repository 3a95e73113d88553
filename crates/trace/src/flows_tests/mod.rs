mod acks;
mod connections;
mod copies;
mod ranges;

use crate::Class;
use crate::Direction::Forward;
use crate::script::Script;

fn established() -> Script {
    let mut script = Script::new();
    script.handshake();
    script
}

fn classes(script: &Script) -> Vec<Class> {
    let record = script.analyse();
    let data = record.sent.iter().filter(|sent| sent.direction == Forward);
    data.map(|sent| sent.class)
        .filter(|class| *class != Class::Control)
        .collect()
}
