use pillion_lab::experiment::{Mechanism, Sysctls};
use toml::de::DeValue;

use super::keys;
use crate::toml_file::Mistake;
use crate::toml_file::value::{Value, keep, wrong};

/// Reads the table `mechanisms` into the kernel parameters that switch them.
pub fn read(value: &Value, sysctls: &mut Sysctls, mistakes: &mut Vec<Mistake>) {
    let Some(table) = keep(keys::table(value), mistakes) else {
        return;
    };
    for (key, value) in table {
        let Some(mechanism) = Mechanism::all().find(|one| one.name() == key.get_ref()) else {
            let known: Vec<_> = Mechanism::all().map(Mechanism::name).collect();
            mistakes.push(keys::unknown(key, &known));
            continue;
        };
        let word = match value.get_ref() {
            DeValue::Boolean(true) => "on",
            DeValue::Boolean(false) => "off",
            DeValue::String(text) => text,
            _ => "",
        };
        let settings = mechanism.settings();
        match settings.iter().find(|setting| setting.word == word) {
            Some(setting) => {
                sysctls.insert(mechanism.sysctl().to_owned(), setting.value.to_owned());
            }
            None => {
                let others = settings.iter().filter(|s| !["on", "off"].contains(&s.word));
                let others = others.map(|setting| format!(" or \"{}\"", setting.word));
                let expected = format!("true or false{}", others.collect::<String>());
                mistakes.push(wrong(value, &expected));
            }
        }
    }
}
