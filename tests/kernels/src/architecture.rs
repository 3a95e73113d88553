//! Processor architectures of kernels.

use std::env::consts::ARCH;

use serde::Deserialize;

/// Processor architecture, with Debian's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    #[default]
    Amd64,
    Arm64,
}

impl Architecture {
    /// Returns Debian's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// True if this host runs programs of the architecture.
    pub fn is_of_host(self) -> bool {
        match self {
            Self::Amd64 => ARCH == "x86_64",
            Self::Arm64 => ARCH == "aarch64",
        }
    }

    /// Returns the emulator's program.
    pub fn emulator(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-system-x86_64",
            Self::Arm64 => "qemu-system-aarch64",
        }
    }

    /// Returns the emulator's arguments for the machine. The second serial port, for reports, is
    /// its standard output ([`crate::report::REPORTS`]).
    pub fn machine(self) -> &'static [&'static str] {
        match self {
            Self::Amd64 => &["-serial", "stdio"],
            // The machine has one serial port.
            Self::Arm64 => &[
                "-machine",
                "virt",
                "-chardev",
                "stdio,id=reports",
                "-device",
                "pci-serial,chardev=reports",
            ],
        }
    }

    /// Returns the console's device in the guest.
    pub fn console(self) -> &'static str {
        match self {
            Self::Amd64 => "ttyS0",
            Self::Arm64 => "ttyAMA0",
        }
    }

    /// Returns the emulator's arguments to emulate a processor without some features.
    pub fn emulated_processor(self, disabled_features: &[String]) -> [String; 4] {
        let (engine, model) = match self {
            // Uses one thread for all cores. With several, a core may hit the breakpoint that
            // another one uses to patch kernel code after its removal, and the kernel crashes. Fast
            // string copies are slow when emulated.
            Self::Amd64 => ("tcg,thread=single", "max,-erms,-fsrm"),
            // The default algorithm of pointer authentication is slow when emulated.
            Self::Arm64 => ("tcg", "max,pauth-impdef=on"),
        };
        let disabled_features = disabled_features.iter();
        let disabled_features = disabled_features.map(|feature| format!(",-{feature}"));
        let model = format!("{model}{}", disabled_features.collect::<String>());
        ["-accel", engine, "-cpu", &model].map(str::to_owned)
    }
}
