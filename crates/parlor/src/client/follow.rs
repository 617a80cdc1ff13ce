use parlor_dialect::{Dialect, Fold, LineProblem};
use parlor_session::{Reading, SessionId, Transcript, Update};

/// Folds what a server says of one session, and tells what is new in it.
pub(crate) struct Follower {
    fold: Fold,
    /// Up to which change it was told what is new.
    told: u64,
}

/// How much one piece has at most, unless a single block is longer.
const PIECE: usize = 1 << 20;

impl Follower {
    /// Follows a session from here on.
    pub(crate) fn new(session: SessionId) -> Self {
        Self { fold: Fold::of_session(Dialect::V2, session), told: 0 }
    }

    /// Takes the line of an update. Those of other sessions change nothing.
    pub(crate) fn take(&mut self, line: &str) -> Result<(), LineProblem> {
        self.fold.line(line)
    }

    /// What changed since the last time this was asked: pieces of text, and whatever else is new as a whole.
    pub(crate) fn news(&mut self) -> Vec<Update> {
        let transcript = self.fold.transcript();
        let mut reading = Reading::new(self.told, transcript.seq());
        self.told = transcript.seq();
        std::iter::from_fn(|| reading.next(transcript, PIECE)).collect()
    }

    /// What was folded so far.
    pub(crate) fn transcript(&self) -> &Transcript {
        self.fold.transcript()
    }
}
