use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Puts what `over` says in place of what `base` says, table by table.
pub(crate) fn merge<'i>(base: &mut DeTable<'i>, over: &DeTable<'i>) {
    for (key, value) in over {
        let there = base.get_mut(&**key.get_ref()).map(Spanned::get_mut);
        match (there, value.get_ref()) {
            (Some(DeValue::Table(there)), DeValue::Table(over)) => merge(there, over),
            _ => {
                base.remove(&**key.get_ref());
                base.insert(key.clone(), value.clone());
            }
        }
    }
}
