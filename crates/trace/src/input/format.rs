use std::fmt;

use super::{Compression, Container, LinkType};

/// What a trace's file is made of. Its text is such as `pcapng, gzip, Ethernet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    container: Container,
    compression: Option<Compression>,
    link_types: Vec<LinkType>,
}

impl Format {
    pub(super) fn new(container: Container, compression: Option<Compression>) -> Self {
        Self {
            container,
            compression,
            link_types: Vec::new(),
        }
    }

    /// Notes a packet's link type.
    #[inline]
    pub(super) fn add(&mut self, link: LinkType) {
        if self.link_types.first() == Some(&link) {
            return;
        }
        if !self.link_types.contains(&link) {
            self.link_types.push(link);
        }
    }

    /// The file format.
    #[must_use]
    pub fn container(&self) -> Container {
        self.container
    }

    /// How it is compressed, if it is.
    #[must_use]
    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }

    /// Link types of the packets, in the order of their first packets.
    #[must_use]
    pub fn link_types(&self) -> &[LinkType] {
        &self.link_types
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.container.fmt(f)?;
        match self.compression {
            None => {}
            Some(Compression::Gzip) => f.write_str(", gzip")?,
            Some(Compression::Zstd) => f.write_str(", zstd")?,
        }
        for link in &self.link_types {
            write!(f, ", {link}")?;
        }
        Ok(())
    }
}
