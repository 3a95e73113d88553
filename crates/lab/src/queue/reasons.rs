use std::collections::BTreeMap;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, EnumMember};

/// The kernel's names for the reasons to drop packets. Their numbers differ from one version of
/// the kernel to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reasons(BTreeMap<u32, String>);

impl Reasons {
    /// The reasons of the running kernel; empty where it does not tell (no BTF).
    #[must_use]
    pub fn of_this_kernel() -> Self {
        let Ok(btf) = Btf::from_vmlinux() else {
            return Self::default();
        };
        let Some(names) = btf.type_by_name::<Enum<'_>>("skb_drop_reason") else {
            return Self::default();
        };
        let name = |member: EnumMember<'_>| {
            let name = member.name?.to_str()?;
            let name = name.strip_prefix("SKB_DROP_REASON_").unwrap_or(name);
            Some((u32::try_from(member.value).ok()?, name.to_owned()))
        };
        Self(names.iter().filter_map(name).collect())
    }

    /// The name for a number, such as `QDISC_OVERLIMIT`; of an unknown one, the number.
    #[must_use]
    pub fn name(&self, reason: u32) -> String {
        let name = self.0.get(&reason).cloned();
        name.unwrap_or_else(|| format!("reason {reason}"))
    }

    /// The number for a name; one that is not known yet gets a number of its own.
    pub fn number(&mut self, name: &str) -> u32 {
        let known = self.0.iter().find(|(_, known)| *known == name);
        let last = self.0.last_key_value();
        let next = last.map_or(1, |(number, _)| number.saturating_add(1));
        let number = known.map_or(next, |(number, _)| *number);
        self.0.entry(number).or_insert_with(|| name.to_owned());
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_not_name_keeps_its_number() {
        let reasons = Reasons(BTreeMap::from([(2, "NOT_SPECIFIED".to_owned())]));
        assert_eq!(reasons.name(2), "NOT_SPECIFIED");
        assert_eq!(reasons.name(77), "reason 77");
    }

    #[test]
    fn a_name_has_one_number() {
        let mut reasons = Reasons::default();
        let numbers = ["A", "B", "A"].map(|name| reasons.number(name));
        assert_eq!(numbers, [1, 2, 1]);
        assert_eq!(numbers.map(|number| reasons.name(number)), ["A", "B", "A"]);
    }
}
