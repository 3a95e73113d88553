use std::os::fd::BorrowedFd;

use crate::selection::Change;
use crate::watch::Watch;
use crate::{Error, Namespace, NamespaceName};

/// A network namespace whose devices are followed. One that has a name may lose it, and
/// another one may get it.
#[derive(Debug)]
pub(crate) struct Place {
    name: Option<NamespaceName>,
    now: Option<(Namespace, Watch)>,
}

impl Place {
    /// The calling thread's.
    pub(crate) fn here() -> Result<Self, Error> {
        Ok(Self {
            name: None,
            now: Some(watched(Namespace::default())?),
        })
    }

    pub(crate) fn named(name: &NamespaceName) -> Result<Self, Error> {
        Ok(Self {
            name: Some(name.clone()),
            now: Some(watched(name.open()?)?),
        })
    }

    pub(crate) fn namespace(&self) -> Option<&Namespace> {
        self.now.as_ref().map(|(namespace, _)| namespace)
    }

    /// Readable when its devices have changed.
    pub(crate) fn news(&self) -> Option<BorrowedFd<'_>> {
        self.now.as_ref().map(|(_, watch)| watch.as_fd())
    }

    /// Lets go of a namespace that is no longer called so, or takes one that now is.
    pub(crate) fn renew(&mut self) -> Option<Change> {
        let name = self.name.as_ref()?;
        match self.namespace() {
            Some(namespace) if name.stands_for(namespace) => None,
            Some(_) => {
                self.now = None;
                Some(Change::Gone(name.to_string()))
            }
            // One that is being made cannot be entered yet.
            None => {
                let returned = name.may_return().then(|| name.open().ok()).flatten()?;
                self.now = watched(returned).ok();
                self.now.as_ref().map(|_| Change::Come(name.to_string()))
            }
        }
    }

    /// Takes note of all changes so far; false if there were none.
    pub(crate) fn take_note(&self) -> bool {
        self.now
            .as_ref()
            .is_some_and(|(_, watch)| watch.take_note())
    }
}

fn watched(namespace: Namespace) -> Result<(Namespace, Watch), Error> {
    let watch = namespace
        .enter(Watch::begin)?
        .map_err(|error| Error::system("watch the network devices", error))?;
    Ok((namespace, watch))
}
