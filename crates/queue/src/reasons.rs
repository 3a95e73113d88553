use std::collections::BTreeMap;

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, EnumMember};
use serde::{Deserialize, Serialize};

/// The kernel's names for the reasons to drop packets. Their numbers differ from one version of
/// the kernel to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
}
