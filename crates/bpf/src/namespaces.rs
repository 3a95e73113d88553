use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::host::{Container, ContainerChoice, Containers};

use crate::{NamespaceName, cgroup1_mount, cgroup2_mount};

/// Which network namespaces' connections are taken in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Namespaces {
    /// Those with these names; if there are none, the calling thread's.
    pub named: Vec<NamespaceName>,
    /// Those of these containers, beside.
    pub of_containers: Vec<ContainerChoice>,
}

impl Namespaces {
    /// True if only the calling thread's are asked for.
    #[must_use]
    pub fn is_own_alone(&self) -> bool {
        self.named.is_empty() && self.of_containers.is_empty()
    }

    /// The same, with no number that stands for a process.
    #[must_use]
    pub fn without_processes(&self) -> Self {
        let named = self.named.iter().cloned();
        Self {
            named: named.map(NamespaceName::without_process).collect(),
            of_containers: self.of_containers.clone(),
        }
    }

    /// True if some may come that are not there yet.
    pub(crate) fn may_come(&self) -> bool {
        self.patterns().next().is_some() || !self.of_containers.is_empty()
    }

    /// Names that have to be there.
    pub(crate) fn plain(&self) -> impl Iterator<Item = &NamespaceName> {
        self.named.iter().filter(|name| !name.is_pattern())
    }

    /// Names with wildcards.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &NamespaceName> {
        self.named.iter().filter(|name| name.is_pattern())
    }

    /// The containers that run now, if any are asked for.
    #[must_use]
    pub fn containers(&self) -> Containers {
        let mut containers = Containers::default();
        self.look_for_containers(&mut containers);
        containers
    }

    /// Looks for the containers that run, if any are asked for.
    pub(crate) fn look_for_containers(&self, containers: &mut Containers) {
        if !self.of_containers.is_empty()
            && let Ok(mount) = cgroup2_mount()
        {
            containers.look(&mount, cgroup1_mount().as_deref());
        }
    }

    /// Those of the containers that are asked for.
    pub(crate) fn chosen<'a>(
        &'a self,
        running: &'a [Container],
    ) -> impl Iterator<Item = &'a Container> {
        let is_chosen = |it: &&Container| {
            let mut choices = self.of_containers.iter();
            choices.any(|choice| choice.has(it))
        };
        running.iter().filter(is_chosen)
    }

    /// The names that there are now like those with wildcards, and those of the containers.
    pub(crate) fn matched(&self, running: &[Container]) -> Vec<NamespaceName> {
        let matched = self.patterns().flat_map(NamespaceName::now);
        let of_containers = self.chosen(running).filter_map(NamespaceName::of_container);
        let own = self.named.is_empty().then(|| identity(OWN)).flatten();
        // The host's is a container's that was given it.
        let is_other = |it: &NamespaceName| own.is_none() || identity(it.path()) != own;
        matched.chain(of_containers.filter(is_other)).collect()
    }

    /// All names that there are now.
    pub(crate) fn now(&self) -> Vec<NamespaceName> {
        let matched = self.matched(self.containers().running());
        self.plain().cloned().chain(matched).collect()
    }
}

/// The calling process's network namespace.
const OWN: &str = "/proc/self/ns/net";

fn identity(file: impl AsRef<Path>) -> Option<(u64, u64)> {
    fs::metadata(file).ok().map(|file| (file.dev(), file.ino()))
}
