//! The programs on their way to the kernel: what is set in them, and which of them it is to have.

use std::mem::MaybeUninit;

use crate::host::interruption::without_signals;
use crate::host::libbpf::Messages;
use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_sys::BPF_F_ANY_ALIGNMENT;

use crate::constants::Constants;
use crate::contract::{OpenPillionSkel, PillionSkelBuilder};
use crate::loaded::Loaded;
use crate::{Error, Policy, Requests, governor, requests, socket_option, walk};

/// What this kernel has, of what the programs can do without.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features {
    /// It goes through a map's own entries.
    pub(crate) over_storage: bool,
    /// Programs at setsockopt(2) can keep something with the socket.
    pub(crate) socket_option: bool,
}

/// The programs, not yet in the kernel.
pub(crate) struct Opened<'a> {
    skel: OpenPillionSkel<'a>,
    features: Features,
    log: Messages,
}

impl<'a> Opened<'a> {
    /// The programs as this policy and this kernel have them.
    pub(crate) fn by(
        policy: &Policy,
        constants: &Constants,
        storage: &'a mut MaybeUninit<OpenObject>,
    ) -> Result<Self, Error> {
        let log = Messages::keep();
        let skel = PillionSkelBuilder::default().open(storage);
        let mut opened = Self {
            skel: skel.map_err(|error| log.explain(&error))?,
            features: Features {
                over_storage: walk::can_be_over_storage(),
                socket_option: socket_option::is_supported(),
            },
            log,
        };
        opened.set(policy, constants)?;
        opened.leave_out_what_the_kernel_lacks();
        opened.read_at_any_address();
        Ok(opened)
    }

    /// Sets what is decided before the kernel verifies them.
    fn set(&mut self, policy: &Policy, constants: &Constants) -> Result<(), Error> {
        let data = self.skel.maps.rodata_data.as_mut();
        constants.store(data.expect("the programs have read-only data"));
        // For both tables.
        let rule_cgroups = 2 * Policy::MAX_CGROUPS as u32;
        let maps = &mut self.skel.maps;
        let sized = maps.pillion_rule_cgroups.set_max_entries(rule_cgroups);
        sized.map_err(|error| self.log.explain(&error))?;
        if policy.governing {
            for map in [&mut maps.pillion_network_load, &mut maps.pillion_allowances] {
                let sized = map.set_max_entries(governor::MAX_NETWORKS);
                sized.map_err(|error| self.log.explain(&error))?;
            }
        }
        if policy.observing.is_some() {
            let sized = maps
                .pillion_observed
                .set_max_entries(policy.max_connections);
            sized.map_err(|error| self.log.explain(&error))?;
        }
        Ok(())
    }

    fn leave_out_what_the_kernel_lacks(&mut self) {
        let programs = &mut self.skel.progs;
        let Features {
            over_storage,
            socket_option,
        } = self.features;
        for (program, is_wanted) in [
            (&mut programs.pillion_kept_flows, over_storage),
            (&mut programs.pillion_kept_flows_by_tcp, !over_storage),
            (&mut programs.pillion_kept_flows_by_file, !over_storage),
            (&mut programs.pillion_count_requests, over_storage),
            (&mut programs.pillion_kept_requests_by_tcp, !over_storage),
            (&mut programs.pillion_kept_requests_by_file, !over_storage),
            (&mut programs.pillion_setsockopt, socket_option),
            (&mut programs.pillion_getsockopt, socket_option),
        ] {
            program.set_autoload(is_wanted);
        }
    }

    fn read_at_any_address(&mut self) {
        if cfg!(target_arch = "x86_64") {
            // The processor reads at any address, but kernels in user mode do not know that.
            let programs = self.skel.open_object_mut().progs_mut();
            programs.for_each(|mut program| program.set_flags(BPF_F_ANY_ALIGNMENT));
        }
    }

    /// The layout of the requests that these programs keep.
    pub(crate) fn layout(&self) -> String {
        requests::layout(self.skel.open_object())
    }

    /// Has the programs go on with requests of the same layout that another pillion has left.
    pub(crate) fn go_on_with(&mut self, left: &Requests) -> Result<(), Error> {
        let requests = &mut self.skel.maps.pillion_requests;
        let taken = requests.reuse_fd(left.map());
        Ok(taken.map_err(|error| self.log.explain(&error))?)
    }

    /// Has the kernel verify them.
    pub(crate) fn load(self) -> Result<Loaded<'a>, Error> {
        let Self {
            skel,
            features,
            log,
        } = self;
        let skel = without_signals(|| skel.load()).map_err(|error| log.explain(&error))?;
        Ok(Loaded::new(skel, features, log))
    }
}
