//! What happens when the CPU refuses an instruction.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Once;

use crate::decode::{Address, Operation, Register, decode};
use crate::execute::{Forbidden, Registers};

thread_local! {
    /// Without anything to drop or to allocate, so that a signal's handler may come here.
    static REGISTERS: UnsafeCell<Registers> = const { UnsafeCell::new(Registers::RELEASED) };
}

/// General-purpose registers by the numbers that instructions give them.
const PLACES: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// From now on refused instructions come to [`refused`], in all threads.
pub fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = refused;
        // SAFETY: zeros are an action; the handler has the signature that SA_SIGINFO asks for.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = handler as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(
                libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut()),
                0,
                "no handler of SIGILL"
            );
        }
    });
}

extern "C" fn refused(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the system hands over why it comes, and the thread's registers.
    let (code, registers) =
        unsafe { ((*info).si_code, &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs) };
    // Sent by somebody, and not for an instruction.
    if code <= 0 {
        // SAFETY: the default, for the same signal once more.
        unsafe {
            libc::signal(libc::SIGILL, libc::SIG_DFL);
            libc::raise(libc::SIGILL);
        }
        return;
    }
    let mut at = registers[libc::REG_RIP as usize] as *const u8;
    let first = at;
    loop {
        // SAFETY: an instruction has up to 15 bytes, and what is decoded here is followed by a function's end at least, behind
        // which there is the rest of the program.
        let code = unsafe { std::slice::from_raw_parts(at, 15) };
        let Some((operation, len)) = decode(code) else { break };
        let value = |register: Option<Register>| {
            register.map_or(0, |register| registers[PLACES[register] as usize] as u64)
        };
        if let Err(forbidden) = execute(operation, value) {
            give_up(forbidden);
        }
        // The next one may be another: a signal for all of them is cheaper than one for each.
        at = at.wrapping_add(len);
    }
    if at == first {
        // It comes again, and nobody catches it then.
        // SAFETY: this is the default.
        unsafe { libc::signal(libc::SIGILL, libc::SIG_DFL) };
    }
    registers[libc::REG_RIP as usize] = at as i64;
}

fn execute(operation: Operation, value: impl Fn(Option<Register>) -> u64) -> Result<(), Forbidden> {
    let start = |address: Address| value(address.base).wrapping_add_signed(address.displacement);
    // What is loaded and stored in rows has the distance between them as its index.
    let index = |address: Address| value(address.index).wrapping_mul(address.scale);
    // SAFETY: signals of this kind come from the instruction alone, so nothing else holds this thread's registers. Memory that
    // an instruction names and that isn't there is a fault here as it is there.
    REGISTERS.with(|tiles| unsafe {
        let tiles = &mut *tiles.get();
        match operation {
            Operation::LoadConfiguration(from) => {
                tiles.load_configuration(start(from).wrapping_add(index(from)) as *const u8)
            }
            Operation::Release => {
                tiles.release();
                Ok(())
            }
            Operation::Zero { to } => tiles.zero(to),
            Operation::Load { to, from } => tiles.load(to, start(from) as *const u8, index(from) as usize),
            Operation::Store { from, to } => tiles.store(from, start(to) as *mut u8, index(to) as usize),
            Operation::DotBf16 { sums, a, b } => tiles.dot_bf16(sums, a, b),
        }
    })
}

/// Ends the process, by what a signal's handler may call.
fn give_up(forbidden: Forbidden) -> ! {
    for part in ["AMX: ", forbidden, "\n"] {
        // SAFETY: the part has its length.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
    // SAFETY: it only ends the process.
    unsafe { libc::abort() }
}
