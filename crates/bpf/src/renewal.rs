//! Programs that were at work, made as the kernel first had them: verification is most of what an
//! attachment takes, and who makes many one after another, as tests do, spares it.

use std::io;

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, MapType, num_possible_cpus};

use crate::constants::Constants;
use crate::{Error, Policy, Programs};

impl Programs {
    /// Makes programs that were at work as [`Programs::load`] would have them, and spares their
    /// verification. `false` if they cannot be: the policy asks for others, or of a socket something
    /// is still kept. On kernels that refuse to go through storage, of a socket that a process has
    /// open, or that is in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`Error::System`] without the capability for maps by their number, [`Error::TooManyRules`]:
    /// they are good for nothing then.
    pub fn renew(&mut self, policy: &Policy) -> Result<bool, Error> {
        let asks_for_these = self.constants == Constants::of(policy);
        if !asks_for_these || !self.places.are_free(self.served.namespaces())? {
            return Ok(false);
        }
        for id in &self.emptied {
            match MapHandle::from_map_id(*id) {
                // It is gone with the programs that were not loaded, as this kernel does without them.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                map => map.and_then(|map| empty(&map)).map_err(failed)?,
            }
        }
        self.tables.store(policy)?;
        self.served.begin_anew(&policy.scope)?;
        self.places.begin_anew();
        if let Some(observations) = &mut self.observations {
            observations.begin_anew();
        }
        Ok(true)
    }
}

/// Has a map hold what it did at first.
fn empty(map: &MapHandle) -> libbpf_rs::Result<()> {
    let zeroes = vec![0; map.value_size() as usize];
    match map.map_type() {
        MapType::Array => {
            for slot in 0..map.max_entries() {
                map.update(&slot.to_ne_bytes(), &zeroes, MapFlags::ANY)?;
            }
        }
        MapType::PercpuArray => {
            let values = vec![zeroes; num_possible_cpus()?];
            for slot in 0..map.max_entries() {
                map.update_percpu(&slot.to_ne_bytes(), &values, MapFlags::ANY)?;
            }
        }
        _ => {
            let keys: Vec<_> = map.keys().collect();
            for key in keys {
                map.delete(&key)?;
            }
        }
    }
    Ok(())
}

fn failed(error: libbpf_rs::Error) -> Error {
    Error::system(
        "empty the programs' maps",
        io::Error::other(error.to_string()),
    )
}
