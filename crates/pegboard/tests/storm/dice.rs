//! Numbers that look random and are the same in every run.

/// A die whose throws depend on its name alone.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn of(name: &str) -> Self {
        // FNV, so that names that differ a little have throws that differ much.
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |seed, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(seed | 1)
    }

    /// A number below this one.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}
