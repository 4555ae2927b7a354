//! Reproducible pseudorandom numbers.

/// Generator seeded by a name.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn of(name: &str) -> Self {
        // FNV spreads similar names.
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |seed, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(seed | 1)
    }

    /// Number below this bound.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}
