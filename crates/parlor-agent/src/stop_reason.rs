use crate::strings::protocol_strings;

protocol_strings! {
    /// Why a turn ended.
    ///
    /// A client of version 1 receives a reason that its version does not have as `end_turn`.
    ///
    /// ```
    /// use parlor_agent::StopReason;
    ///
    /// assert_eq!(StopReason::EndTurn.as_str(), "end_turn");
    /// assert_eq!(StopReason::from("_budget"), StopReason::Other("_budget".to_owned()));
    /// ```
    StopReason {
        /// The agent finished.
        EndTurn = "end_turn",
        /// The model reached its limit of tokens.
        MaxTokens = "max_tokens",
        /// The agent reached its limit of model requests in one turn.
        MaxTurnRequests = "max_turn_requests",
        /// The agent refused to go on.
        Refusal = "refusal",
        /// The turn was cancelled. The library ends a turn that a client cancels with this reason by itself.
        Cancelled = "cancelled",
    }
}
