//! An instruction's bytes into what is to be done. All of AMX's have a VEX prefix of three bytes, 128 bits, map 0F38.

/// Numbers of general-purpose registers, as instructions count them.
pub type Register = usize;

/// Where memory is: `base + index * scale + displacement`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub base: Option<Register>,
    pub index: Option<Register>,
    pub scale: u64,
    pub displacement: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// LDTILECFG
    LoadConfiguration(Address),
    /// TILERELEASE
    Release,
    /// TILEZERO
    Zero { to: usize },
    /// TILELOADD
    Load { to: usize, from: Address },
    /// TILESTORED
    Store { from: usize, to: Address },
    /// TDPBF16PS
    DotBf16 { sums: usize, a: usize, b: usize },
}

/// The operation that `code` begins with and its length, or nothing if it is none of AMX's that are known here.
pub fn decode(code: &[u8]) -> Option<(Operation, usize)> {
    let &[0xc4, first, second, opcode, modrm, ref rest @ ..] = code else { return None };
    // R, X and B are stored inverted, as is vvvv.
    let [r, x, b] = [7, 6, 5].map(|bit| first >> bit & 1 ^ 1);
    let (map, w, l, prefix) = (first & 31, second >> 7, second >> 2 & 1, second & 3);
    let v = usize::from(!(second >> 3) & 15);
    if (map, w, l) != (2, 0, 0) {
        return None;
    }
    let (mode, reg, rm) = (modrm >> 6, usize::from(modrm >> 3 & 7 | r << 3), usize::from(modrm & 7 | b << 3));
    const NONE: u8 = 0;
    const P66: u8 = 1;
    const F3: u8 = 2;
    const F2: u8 = 3;
    let unused = v == 0;
    let memory = || address(mode, rm & 7, [x, b], rest);
    // Loads and stores of tiles need an index: their second byte is always a SIB.
    let rows = || (rm & 7 == 4).then(memory).flatten().filter(|(address, _)| address.index.is_some());
    Some(match (opcode, prefix) {
        (0x49, NONE) if unused && modrm == 0xc0 => (Operation::Release, 5),
        (0x49, NONE) if unused && reg == 0 && mode < 3 => {
            let (address, len) = memory()?;
            (Operation::LoadConfiguration(address), 5 + len)
        }
        (0x49, F2) if unused && mode == 3 && rm == 0 && reg < 8 => (Operation::Zero { to: reg }, 5),
        // The second is the same with a hint for the caches.
        (0x4b, F2 | P66) if unused && mode < 3 && reg < 8 => {
            let (from, len) = rows()?;
            (Operation::Load { to: reg, from }, 5 + len)
        }
        (0x4b, F3) if unused && mode < 3 && reg < 8 => {
            let (to, len) = rows()?;
            (Operation::Store { from: reg, to }, 5 + len)
        }
        (0x5c, F3) if mode == 3 && reg < 8 && rm < 8 && v < 8 => {
            (Operation::DotBf16 { sums: reg, a: rm, b: v }, 5)
        }
        _ => return None,
    })
}

/// A memory operand and how many bytes follow the ModRM byte.
fn address(mode: u8, rm: usize, [x, b]: [u8; 2], rest: &[u8]) -> Option<(Address, usize)> {
    let high = usize::from(b) << 3;
    let (mut base, mut index, mut scale, mut at) = (Some(rm | high), None, 1, 0);
    if rm == 4 {
        let sib = *rest.first()?;
        at = 1;
        let (low, middle) = (usize::from(sib & 7), usize::from(sib >> 3 & 7 | x << 3));
        base = (low != 5 || mode != 0).then_some(low | high);
        index = (middle != 4).then_some(middle);
        scale = 1 << (sib >> 6);
    } else if rm == 5 && mode == 0 {
        // Relative to the next instruction, which compilers don't use here.
        return None;
    }
    let bytes = match mode {
        0 if base.is_some() => 0,
        1 => 1,
        _ => 4,
    };
    let displacement = match *rest.get(at..at + bytes)? {
        [] => 0,
        [byte] => i64::from(byte as i8),
        ref four => i64::from(i32::from_le_bytes(four.try_into().ok()?)),
    };
    Some((Address { base, index, scale, displacement }, at + bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAX: Register = 0;
    const RSP: Register = 4;

    #[test]
    fn what_an_assembler_makes_is_understood() {
        let rows = |base, index, displacement| Address {
            base: Some(base),
            index: Some(index),
            scale: 1,
            displacement,
        };
        let at = |base| Address { base: Some(base), index: None, scale: 1, displacement: 0 };
        let cases: [(&[u8], Operation); 12] = [
            // ldtilecfg [rax], [rsp], [r13 + 0]
            (&[0xc4, 0xe2, 0x78, 0x49, 0x00], Operation::LoadConfiguration(at(RAX))),
            (&[0xc4, 0xe2, 0x78, 0x49, 0x04, 0x24], Operation::LoadConfiguration(at(RSP))),
            (&[0xc4, 0xc2, 0x78, 0x49, 0x45, 0x00], Operation::LoadConfiguration(at(13))),
            // tilerelease
            (&[0xc4, 0xe2, 0x78, 0x49, 0xc0], Operation::Release),
            // tilezero tmm5
            (&[0xc4, 0xe2, 0x7b, 0x49, 0xe8], Operation::Zero { to: 5 }),
            // tileloadd tmm4, [rdx + rcx]
            (&[0xc4, 0xe2, 0x7b, 0x4b, 0x24, 0x0a], Operation::Load { to: 4, from: rows(2, 1, 0) }),
            // tileloadd tmm7, [r9 + r12 + 64]
            (&[0xc4, 0x82, 0x7b, 0x4b, 0x7c, 0x21, 0x40], Operation::Load { to: 7, from: rows(9, 12, 64) }),
            // tileloadd tmm1, [rax + 8 * rbx - 4096]
            (
                &[0xc4, 0xe2, 0x7b, 0x4b, 0x8c, 0xd8, 0x00, 0xf0, 0xff, 0xff],
                Operation::Load { to: 1, from: Address { scale: 8, ..rows(RAX, 3, -4096) } },
            ),
            // tileloaddt1 tmm0, [rax + rbx]
            (&[0xc4, 0xe2, 0x79, 0x4b, 0x04, 0x18], Operation::Load { to: 0, from: rows(RAX, 3, 0) }),
            // tilestored [r8 + rsi], tmm3
            (&[0xc4, 0xc2, 0x7a, 0x4b, 0x1c, 0x30], Operation::Store { from: 3, to: rows(8, 6, 0) }),
            // tdpbf16ps tmm0, tmm4, tmm6 and tmm3, tmm5, tmm7
            (&[0xc4, 0xe2, 0x4a, 0x5c, 0xc4], Operation::DotBf16 { sums: 0, a: 4, b: 6 }),
            (&[0xc4, 0xe2, 0x42, 0x5c, 0xdd], Operation::DotBf16 { sums: 3, a: 5, b: 7 }),
        ];
        for (code, expected) in cases {
            let mut code = code.to_vec();
            let len = code.len();
            code.resize(15, 0x90);
            assert_eq!(decode(&code), Some((expected, len)), "{code:x?}");
        }
    }

    #[test]
    fn others_are_left_alone() {
        for code in [
            // ud2; vaddps ymm0, ymm1, ymm2; tdpbssd tmm0, tmm4, tmm6; tilerelease with a register that it doesn't have
            &[0x0f, 0x0b][..],
            &[0xc5, 0xf4, 0x58, 0xc2],
            &[0xc4, 0xe2, 0x4b, 0x5e, 0xc4],
            &[0xc4, 0xe2, 0x70, 0x49, 0xc0],
        ] {
            let mut code = code.to_vec();
            code.resize(15, 0x90);
            assert_eq!(decode(&code), None, "{code:x?}");
        }
    }
}
