//! The disk and what befalls the server.

use core::time::Duration;

use parlor_engine::Event;

use super::Invariant;
use super::shell::Message;
use super::world::{World, session_id};

impl World {
    /// The disk commits the oldest batch.
    pub(super) fn commit(&mut self) {
        match self.disk.commit() {
            None => {}
            Some(Err(error)) => self.fail(Invariant::Batches, format!("the store rejects a batch: {error}")),
            Some(Ok(submitted)) => {
                self.check_batch(&submitted.batch);
                if !submitted.batch.durable {
                    self.report(submitted.incarnation, Ok(()));
                }
            }
        }
    }

    /// The disk makes all that is committed safe from a power cut.
    pub(super) fn sync(&mut self) {
        for incarnation in self.disk.sync() {
            self.report(incarnation, Ok(()));
        }
    }

    /// The disk fails to write a batch, or to make batches safe.
    pub(super) fn fail_write(&mut self) {
        if self.disk.is_unsynced() && self.random.percent(50) {
            self.note(|| "the disk fails to sync".to_owned());
            for incarnation in self.disk.fail_sync() {
                self.report(incarnation, Err("the disk is full"));
            }
        } else if let Some(submitted) = self.disk.fail() {
            self.note(|| "the disk fails to write".to_owned());
            self.report(submitted.incarnation, Err("the disk is full"));
        }
    }

    fn report(&mut self, incarnation: u64, result: Result<(), &str>) {
        let found = self.shells.iter().find(|(_, shell)| shell.incarnation == incarnation);
        if let Some(key) = found.map(|(key, _)| key.clone()) {
            self.batch_done(&key, result);
        }
    }

    /// The server is killed, perhaps by a power cut, and starts again.
    pub(super) fn kill(&mut self, cuts_power: bool) {
        self.count(if cuts_power { "power cuts" } else { "kills" });
        let committed = self.random.below(self.disk.waiting() + 1);
        let lost = self.random.below(self.disk.losable() + committed + 1);
        self.note(|| {
            if cuts_power {
                format!("the power is cut, {lost} batches are lost")
            } else {
                "the server is killed".to_owned()
            }
        });
        for result in self.disk.kill(committed) {
            match result {
                Ok(submitted) => self.check_batch(&submitted.batch),
                Err(error) => self.fail(Invariant::Batches, format!("the store rejects a batch: {error}")),
            }
        }
        if cuts_power {
            self.disk.cut_power(lost);
            self.ledger.power_cut();
        }
        self.forget_server();
        if cuts_power {
            // Changes that were lost had numbers, which other changes get now: no client can go on from one of them.
            let replicas = self.people.iter_mut().flat_map(|person| person.replicas.values_mut());
            replicas.for_each(|replica| {
                replica.seq = None;
                // Other prompts may get the ids of lost ones.
                replica.queue = None;
            });
            // The names of messages may be lost as well.
            self.people.iter_mut().for_each(|person| person.aliases.clear());
        }
        self.restart();
    }

    /// The server starts: sessions that were left in the middle of a turn are opened.
    fn restart(&mut self) {
        self.check_prompts();
        for id in self.disk.sessions(true) {
            let _ = self.open(&session_id(&id));
        }
    }

    /// The server stops in good order, and starts again.
    pub(super) fn stop(&mut self) {
        self.note(|| "the server stops".to_owned());
        self.is_stopping = true;
        for shell in self.shells.values_mut() {
            shell.inbox.push_back(Message::Event(Event::Stop));
        }
        for _ in 0..1000 {
            while self.disk.waiting() > 0 {
                self.commit();
            }
            self.sync();
            let ready = self.shells.iter().find(|(_, shell)| shell.is_ready()).map(|(key, _)| key.clone());
            match ready {
                Some(key) => self.run_session(&key, 16),
                None => break,
            }
        }
        if !self.shells.is_empty() {
            self.fail(Invariant::Rest, "a session did not end with the server".to_owned());
        }
        self.is_stopping = false;
        self.forget_server();
        self.restart();
    }

    /// A session looks whether anybody uses it.
    pub(super) fn tick(&mut self) {
        let keys: Vec<_> = self.shells.keys().cloned().collect();
        let Some(key) = self.random.pick(&keys) else { return };
        let idle_unrestorable =
            if self.random.percent(50) { Duration::ZERO } else { Duration::from_secs(600) };
        let tick = Event::Tick { idle: Duration::ZERO, idle_unrestorable };
        if let Some(shell) = self.shells.get_mut(&key) {
            shell.inbox.push_back(Message::Event(tick));
        }
    }

    /// Time passes, and now and then much of it. Clocks that people set may go back.
    pub(super) fn pass_time(&mut self) {
        let millis = match self.random.below(20) {
            0 => self.random.between(10_000, 700_000),
            1..=4 => self.random.between(100, 3000),
            _ => self.random.between(0, 60),
        };
        self.now += Duration::from_millis(millis as u64);
        self.wall += i64::try_from(millis).unwrap_or_default();
        if self.random.one_in(100) {
            self.wall -= 3_600_000;
        }
        let now = self.now;
        while let Some(place) = self.timers.iter().position(|timer| timer.at <= now) {
            self.fire_timer(place);
        }
    }

    /// An agent process ends, or hangs, or goes on.
    pub(super) fn hurt_agent(&mut self) {
        let alive: Vec<_> =
            (0..self.processes.len()).filter(|process| self.processes[*process].is_alive).collect();
        let Some(process) = self.random.pick(&alive) else { return };
        if self.plan.faults.crashes && self.random.percent(40) {
            self.end_process(process);
        } else if self.plan.faults.hangs {
            let hung = &mut self.processes[process].is_hung;
            *hung = !*hung;
            let hung = *hung;
            self.note(|| format!("process {process} {}", if hung { "hangs" } else { "goes on" }));
        }
    }
}
