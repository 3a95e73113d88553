use std::fmt::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::btf::types::{Composite, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, BtfType, HasSize};
use libbpf_rs::{AsRawLibbpf, OpenObject};

/// The requests of applications for their sockets, with the rules' decisions
/// (`bpf/bundler/policy/request.h`): the next pillion may reuse them.
#[derive(Debug)]
pub struct Requests {
    map: OwnedFd,
    layout: String,
}

impl Requests {
    /// Wraps the map of a pillion, possibly another one, and its layout.
    #[must_use]
    pub fn new(map: OwnedFd, layout: String) -> Self {
        Self { map, layout }
    }

    /// The map, by socket.
    #[must_use]
    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// The layout of an entry, as text: equal for equal layouts.
    #[must_use]
    pub fn layout(&self) -> &str {
        &self.layout
    }

    /// True if these programs can reuse the requests of others.
    #[must_use]
    pub fn has_same_layout(&self, left: &Self) -> bool {
        self.layout == left.layout
    }
}

/// The layout of these programs' requests.
pub(crate) fn layout(object: &OpenObject) -> String {
    // SAFETY: valid as long as it is borrowed.
    let object = unsafe { object.as_libbpf_object().as_ref() };
    let btf = Btf::from_bpf_object(object).ok().flatten();
    let btf = btf.expect("the programs have BTF");
    let request = btf.type_by_name::<Struct>("request");
    let mut layout = String::new();
    describe(&btf, *request.expect("it is in the map"), &mut layout);
    layout
}

/// Writes names, offsets and sizes of the members; the last size follows from the total.
fn describe(btf: &Btf, root: BtfType, layout: &mut String) {
    let Ok(composite) = Composite::try_from(root.skip_mods_and_typedefs()) else {
        return;
    };
    layout.push('{');
    for member in composite.iter() {
        let (MemberAttr::Normal { offset } | MemberAttr::BitField { offset, .. }) = member.attr;
        let name = member.name.unwrap_or_default().to_string_lossy();
        let _ = write!(layout, " {name}@{}", offset / 8);
        if let Some(inner) = btf.type_by_id(member.ty) {
            describe(btf, inner, layout);
        }
    }
    let _ = write!(layout, " }}{}", composite.size());
}

#[cfg(test)]
mod tests {
    use libbpf_rs::MapInfo;
    use nix::unistd::Uid;

    use super::*;
    use crate::{Policy, Programs};

    fn map_of(programs: &Programs) -> u32 {
        let info = MapInfo::new(programs.requests().map());
        info.expect("the kernel knows it").info.id
    }

    #[test]
    fn requests_are_reused_only_with_same_layout() {
        if !Uid::effective().is_root() {
            println!("left out without root");
            return;
        }
        let policy = Policy::default();
        let first = Programs::load(&policy).unwrap();
        let layout = first.requests().layout().to_owned();
        assert!(
            layout.starts_with("{ bundling@0 max_packets@4 "),
            "{layout}"
        );
        assert!(layout.contains(" rule_decision@16{ mode@0 "), "{layout}");
        let left = |layout| {
            let map = first.requests().map().try_clone_to_owned();
            Requests::new(map.unwrap(), layout)
        };
        let after =
            |left: &Requests| map_of(&Programs::load_with_requests(&policy, Some(left)).unwrap());
        let other = layout.replace("max_bytes", "max_segments");
        assert_eq!(after(&left(layout)), map_of(&first));
        assert_ne!(after(&left(other)), map_of(&first));
    }
}
